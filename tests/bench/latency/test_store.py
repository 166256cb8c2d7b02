"""A cell is done where one run has stored all of its arms, whatever runs were broken off before and after."""

from math import isnan, nan, prod
from types import SimpleNamespace

import pytest
import torch

from headcount.bench import records
from headcount.bench.latency import gates
from headcount.bench.latency.cells import Cell
from headcount.bench.latency.faults import DeviceLost
from headcount.bench.latency.store import Store
from headcount.bench.table import Row, Section
from tests.bench.latency.test_compare import record
from tests.bench.output.reading import columns

ARMS = [("moa", "grouped", "subject"), ("moa", "loop", "subject"), ("mha", "grouped", "mha"), ("moa", "grouped", "mha")]


def rows(time, arms=ARMS, of=4):
    """What a run of ``time`` stored of a cell of so many arms."""
    environment = {"device": "cpu A", "time": time}
    return [
        record(arm, implementation=how, role=role, environment=environment, arms_in_cell=of) for arm, how, role in arms
    ]


RUNS = {
    "one run": (rows("9:00"), "9:00"),
    "the newer of two": (rows("9:00") + rows("9:05"), "9:05"),
    "one before another that was broken off": (rows("9:00") + rows("9:05", ARMS[:3]), "9:00"),
    "one after another that was broken off": (rows("9:00", ARMS[:1]) + rows("9:05"), "9:05"),
    "none but broken ones": (rows("9:00", ARMS[:2]) + rows("9:05", ARMS[2:]), None),
    "an arm twice is no other arm": (rows("9:00", [*ARMS[:3], ARMS[0]]), None),
    "rows that do not say of how many": (rows("9:00", of=None), None),
}


@pytest.mark.parametrize("case", RUNS)
def test_the_newest_whole_run_counts(case, tmp_path):
    stored, time = RUNS[case]
    records.append(tmp_path / "r.jsonl", *stored)
    done = Store(tmp_path / "r.jsonl").done
    assert {cell: {row["environment"]["time"] for row in found} for cell, found in done.items()} == (
        {"layer moa T7": {time}} if time else {}
    )
    assert all(len(found) == len(ARMS) for found in done.values())


@pytest.mark.parametrize("stored", [True, False])
def test_what_a_run_has_finished_is_done_and_stored_where_there_is_a_place(stored, tmp_path):
    store = Store(tmp_path / "r.jsonl" if stored else None)
    store.finish("layer moa T7", rows("9:00"))
    assert store.done == {"layer moa T7": rows("9:00")}
    assert Store(tmp_path / "r.jsonl").done.keys() == ({"layer moa T7"} if stored else set())


def test_a_line_that_is_no_record_is_named_beside_what_is_printed(tmp_path, capsys):
    (tmp_path / "r.jsonl").write_text("{\n")
    assert Store(tmp_path / "r.jsonl").done == {}
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"{tmp_path / 'r.jsonl'}:1: not JSON") and err.count("\n") == 1


def test_what_is_stored_is_of_its_cell_alone(tmp_path):
    other = [row | {"cell": "layer moa T11"} for row in rows("9:00", ARMS[:1], of=1)]
    mixed = [*rows("9:00")[:2], *other, *rows("9:00")[2:]]
    records.append(tmp_path / "r.jsonl", *mixed)
    done = Store(tmp_path / "r.jsonl").done
    assert {cell: len(found) for cell, found in done.items()} == {"layer moa T7": 4, "layer moa T11": 1}
    assert {row["cell"] for row in done["layer moa T11"]} == {"layer moa T11"}


def test_an_arm_that_broke_the_device_has_a_row_among_the_gates():
    cell = Cell("layer", "moa-8K8E128D", 129, 2, "bfloat16", "both", "cuda", "balanced")
    found = gates._lost(cell, DeviceLost("moa-8K8E128D loop", "failed: AcceleratorError"))
    assert (found["cell"], found["arm"], found["status"]) == (cell.key, "moa-8K8E128D loop", "failed: AcceleratorError")
    printed = columns(Section(gates.TABLE, [Row(found["shown"])]))
    assert {head: cell for head, (cell,) in printed.items() if cell != "–"} == {
        "layer": "moa-8K8E128D", "arm": "loop", "dtype": "bfloat16", "pass": "both", "T": "129", "routing": "balanced",
        "status": "failed: AcceleratorError",
    }  # fmt: skip


def test_an_arm_that_fails_when_it_is_called_again_says_why_be_the_device_lost_or_not(cuda):
    cell, arm = SimpleNamespace(device="cuda"), SimpleNamespace(name="moa loop", call=lambda i: [][i])
    assert gates._beside(cell, arm) == ("failed: IndexError: list index out of range", {"replay": None, "same": None})
    cuda.dead, arm.call = "unspecified launch failure", lambda i: cuda.check()
    with pytest.raises(DeviceLost) as lost:
        gates._beside(cell, arm)
    said = "failed: AcceleratorError: CUDA error: unspecified launch failure"
    assert (lost.value.label, lost.value.status) == ("moa loop", said)


STALE = "wrong: a replay on other inputs is not right"


@pytest.mark.parametrize("replay, status", [(None, "right"), (0.25, "right"), (0.5, STALE), (nan, STALE)])
def test_a_replay_may_be_as_far_off_as_the_arm_and_bits_that_are_others_are_told(replay, status, monkeypatch):
    graphs, errors = {(1, 3): "one call of 3 sets"}, {("a run", "one call of 3 sets"): replay}
    outputs = iter((5.0, 5.0, 5.0, 7.0))
    monkeypatch.setattr("headcount.bench.latency.capture.capture", lambda call, *how: graphs[how])
    monkeypatch.setattr("headcount.bench.latency.gate.replay_error", lambda *of: errors[of])
    arm = SimpleNamespace(run="a run", sets=3, bound=0.25, call=lambda i: torch.full((7,), next(outputs)))
    cell = SimpleNamespace(device="cpu" if replay is None else "cuda")
    for same in ("yes", "no"):
        assert gates._beside(cell, arm) == (status, {"replay": replay, "same": same})


@pytest.mark.parametrize("device, times", [("cuda", 1), ("cpu", 0)])
def test_memory_of_a_gpu_is_filled_with_what_is_no_number(device, times, monkeypatch):
    filled = []
    monkeypatch.setattr(torch, "full", lambda size, value, device: filled.append((4 * prod(size), value, device)))
    gates._poison(device)
    assert [(size, where) for size, _, where in filled] == [(256 * 2**20, "cuda")] * times
    assert all(isnan(value) for _, value, _ in filled)
