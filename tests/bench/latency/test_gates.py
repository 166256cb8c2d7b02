"""The table of gates: what a row and its record say, which are made again, and what is said where time ends."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from headcount.bench import records
from headcount.bench.latency import clock, gates
from headcount.bench.latency.__main__ import main
from headcount.bench.latency.capture import NotCaptured
from headcount.bench.latency.cells import Cell
from headcount.bench.latency.faults import DeviceLost
from headcount.bench.render import realised
from tests.bench.output.reading import columns

CELL = Cell("layer", "some", 7, 2, "float32", "both", "cuda", "zipf", ("grouped",))
ARMS = ("some grouped", "mqa-2x16 fused", "mha-1x64 fused", "mha-2x16 fused")
CHECKED = {
    "error": 0.00071, "bound": 0.002, "status": "timed", "choices": {"tokens": 11, "clear": 7, "other": 5},
    "backends": ["flash", "math"],
}  # fmt: skip


def test_a_row_says_what_an_arm_was_checked_by_and_its_record_whose_it_is(layers, monkeypatch):
    poisoned, besides = [], {
        ARMS[0]: ("right", {"replay": 0.00034, "same": "yes"}),
        ARMS[1]: ("wrong: stale", {"replay": "none: it waits", "same": "no"}),
    }  # fmt: skip

    def prepare(cell, spec, shared, known):
        assert cell is CELL and shared.config.num_experts == 6 and known == {}
        name = f"{spec.name} {spec.arm}"
        if name in besides:
            return CHECKED, name
        return dict.fromkeys(CHECKED) | {"status": "wrong: far off"}, None

    monkeypatch.setattr(clock, "prepare", prepare)
    monkeypatch.setattr(gates, "_beside", lambda cell, arm: besides[arm])
    monkeypatch.setattr(gates, "_poison", poisoned.append)
    monkeypatch.setattr("headcount.bench.latency.capture.side_stream", nullcontext)
    found = list(gates.check_cell(CELL))
    assert poisoned == ["cuda"] * 4
    statuses = ["right", "wrong: stale", "wrong: far off", "wrong: far off"]
    assert [{key: one for key, one in record.items() if key != "shown"} for record in found] == [
        {"kind": "latency-gate", "cell": CELL.key, "arm": arm, "status": status}
        for arm, status in zip(ARMS, statuses, strict=True)
    ]
    what = {"dtype": "float32", "pass": "both", "seq_len": 7, "routing": "zipf"}
    what |= dict.fromkeys(("error", "bound", "choices", "replay", "same", "core"))
    checked = {"error": "7e-04", "bound": "2e-03", "choices": 5, "core": "flash, math"}
    own = [checked | {"replay": "3e-04", "same": "yes"}, checked | {"replay": "none: it waits", "same": "no"}, {}, {}]
    for arm, status, those, record in zip(ARMS, statuses, own, found, strict=True):
        layer, how = arm.split()
        assert record["shown"] == {**what, "layer": layer, "arm": how, "status": status, **those}
    assert {tuple(record["shown"]) for record in found} == {tuple(column.key for column in gates.TABLE.columns)}


def cells(*lengths):
    return [Cell("layer", "some", length, 2, "float32", "forward", "cpu", "balanced") for length in lengths]


def record(cell, status="right"):
    shown = dict.fromkeys(column.key for column in gates.TABLE.columns) | {"seq_len": cell.seq_len, "status": status}
    return {"kind": gates.KIND, "cell": cell.key, "arm": "some loop", "status": status, "shown": shown}


def test_what_is_stored_is_not_checked_again_and_what_is_checked_is_stored(monkeypatch, tmp_path):
    checked, path = [], tmp_path / "r.jsonl"
    monkeypatch.setattr(gates, "check_cell", lambda cell: checked.append(cell.seq_len) or [record(cell, "wrong: off")])
    three, known = cells(5, 7, 11), record(cells(7)[0])
    section = realised(gates.section(three, path, known=[known]))
    assert checked == [5, 11] and columns(section)["T"] == ["5", "7", "11"] and section.below == []
    assert [one["cell"] for one in records.read(path)[0]] == [three[0].key, three[2].key]
    assert [row.failures for row in section.rows] == [
        [f"{three[0].key} some loop: wrong: off"], [], [f"{three[2].key} some loop: wrong: off"],
    ]  # fmt: skip
    assert section.rows[1].records == [known]
    assert gates.result([section, section]) == "2 of 6 arms are right."


def test_without_time_what_is_stored_is_shown_and_how_many_cells_are_left_is_said(monkeypatch):
    monkeypatch.setattr(gates, "check_cell", lambda cell: [record(cell)])
    four, time = cells(5, 7, 11, 13), iter([True, False])
    section = realised(gates.section(four, None, lambda: next(time), [record(four[1])]))
    assert columns(section)["T"] == ["5", "7"] and section.below == ["No time was left for 2 of 4 cells."]


def test_a_lost_device_is_a_row_of_its_cell_and_is_told_once(monkeypatch, tmp_path):
    def check(cell):
        if cell.seq_len == 5:
            raise DeviceLost("some loop", "failed: gone")
        return [record(cell)]

    told, path = [], tmp_path / "r.jsonl"
    monkeypatch.setattr(gates, "check_cell", check)
    lost = lambda: told.append(len(records.read(path)[0]))  # noqa: E731
    section = realised(gates.section(cells(5, 7), path, on_lost=lost))
    assert columns(section)["status"] == ["failed: gone", "right"]
    # after it was stored: a new process is to find it
    assert told == [1]


@pytest.mark.parametrize(
    "argv, dtypes", [([], ["float32"]), (["--dtype", "float64", "float16"], ["float64", "float16"])]
)
def test_the_command_checks_each_layer_at_each_shape_in_each_type(argv, dtypes, layers, monkeypatch, capsys):
    checked = []
    monkeypatch.setattr(gates, "check_cell", lambda cell: checked.append(cell) or [record(cell)])
    assert main(["gates", "--layer", "some", "dense", *argv]) == 0
    assert [(c.dtype, c.seq_len, c.batch_size, c.routing, c.which, c.name) for c in checked] == [
        (dtype, *shape, which, name)
        for dtype in dtypes
        for shape in ((129, 2, "balanced"), (512, 2, "balanced"), (1, 1, "balanced"), (10, 4, "one-expert"))
        for which in ("forward", "both")
        for name in ("some", "dense")
    ]
    assert {(cell.subject, cell.device, cell.asked) for cell in checked} == {("layer", "cpu", None)}
    assert f"{16 * len(dtypes)} of {16 * len(dtypes)} arms are right." in capsys.readouterr().out


def test_why_an_arm_has_no_graph_is_told_in_sixty_characters_and_it_is_right_all_the_same(monkeypatch):
    def waits(*_):
        raise NotCaptured("it waits for the host at each of its experts, of which there are many")

    monkeypatch.setattr("headcount.bench.latency.capture.capture", waits)
    arm = SimpleNamespace(name="some loop", run="a run", sets=3, bound=0.25, call=lambda i: torch.ones(7))
    said = "none: it waits for the host at each of its experts, of which"
    assert gates._beside(CELL, arm) == ("right", {"replay": said, "same": "yes"})
