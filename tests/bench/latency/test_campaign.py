"""The campaign on a device that is not there: its order, its time, what it stores and what it says is missing."""

import json
import re
from dataclasses import replace

import pytest

from headcount.bench import records
from headcount.bench.latency import gates, order, tuning
from headcount.bench.latency.__main__ import main
from headcount.bench.latency.cells import Cell
from headcount.bench.latency.order import Stage, by_value, campaign_cells, seconds
from headcount.bench.latency.roofline import Work
from headcount.models.configs.layers import LAYERS
from headcount.models.configs.presets import PRESETS

STAGES = (
    Stage(("some", "all"), (7,), ("forward", "both")),
    Stage(("some",), (16,), ("decode",)),
    Stage(("heads",), (7,)),
    Stage(("some",), (7,), blocks=3),
)


@pytest.fixture
def small(cuda, quick, monkeypatch):
    """Few small cells, gates of one layer, and two cores to choose from."""
    monkeypatch.setattr(order, "STAGES", STAGES)
    monkeypatch.setattr(gates, "LAYERS", ("some",))
    monkeypatch.setattr(gates, "SHAPES", ((7, 2, "balanced"), (1, 1, "balanced")))
    monkeypatch.setattr(gates, "POISON_BYTES", 64)
    monkeypatch.setattr(tuning, "CORES", ((2, 16, 8),))
    monkeypatch.setattr(tuning, "KERNELS", {"expert": "moa-8K32E128D"})
    return cuda


def run(tmp_path, *more):
    return main(["campaign", "--out-dir", str(tmp_path), "--tokens", "14", "--blocks", "2", "--commit", "abc", *more])


def test_the_whole_campaign_within_its_time(small, tmp_path, capsys):
    assert run(tmp_path) == 0
    out, err = capsys.readouterr()
    found, problems = records.read(tmp_path / "latency.jsonl")
    assert problems == []
    cells = dict.fromkeys(r["cell"] for r in found if r["kind"] == "latency")
    assert list(cells) == [cell.key for cell in campaign_cells(tokens=14)] and len(cells) == 2 * 2 + 1 + 1 + 1
    assert {r["status"] for r in found if r["kind"] == "latency"} == {"timed"}
    timed = [r for r in found if r["kind"] == "latency"]
    again = [r for r in timed if r["again"]]
    once = [r for r in timed if f"{r['cell']} again in 3 blocks" == again[0]["cell"]]
    assert [len(r["wall_ms"]) for r in again] == [3] * 7 and [r["blocks"] for r in again] == [3] * 7
    assert [len(r["wall_ms"]) for r in once] == [2] * 7 and [r["arm"] for r in once] == [r["arm"] for r in again]
    # two types, two shapes, two passes, seven arms
    checked = [r for r in found if r["kind"] == "latency-gate"]
    assert {r["status"] for r in checked} == {"right"} and len(checked) == 2 * 2 * 2 * 7
    assert {r["shown"]["same"] for r in checked} == {"yes"}
    assert all(r["environment"]["commit"] == "abc" for r in found if r["kind"] == "latency")
    env = json.loads((tmp_path / "env.json").read_text())
    assert env["gpu"]["uuid"] == "GPU-0" and env["command"] == ["bench.latency", "campaign", "--within", "580"]
    ways = json.loads((tmp_path / "choices.json").read_text())
    assert [w["way"] for w in ways] == ["cudnn_attention", "flash_attention", "efficient_attention", "triton"]
    assert ways[3]["status"] == "needs a real device"
    assert (tmp_path / "missing.txt").read_text() == "" and "nothing is missing" in err
    assert "GPU and wall time on NVIDIA H200" in out and "Arms against the float64 reference" in out


def test_expected_seconds_are_said_before_anything_begins(small, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(small, "operation", lambda name: pytest.fail("begun"))
    monkeypatch.setattr("headcount.bench.latency.campaign._sections", lambda *_: iter(()))
    assert run(tmp_path) == 0
    err = capsys.readouterr().err
    assert err.count(" s expected  layer ") == 7 and re.search(r"s expected for 7 cells, 5[78]\d s left", err)
    # what was never begun is missing too
    assert err.count(": not begun") == 7


def test_what_was_not_reached_is_named_and_comes_next_time(small, tmp_path, capsys, monkeypatch):
    # one cell before it and one behind it, and few gates
    few = (("some",), (7,), ("forward",)), (("some",), (16,), ("decode",)), (("heads",), (7,), ("forward",))
    monkeypatch.setattr(order, "STAGES", tuple(Stage(*one) for one in few))
    monkeypatch.setattr(gates, "SHAPES", ((1, 1, "balanced"),))
    plain = order.seconds
    monkeypatch.setattr(order, "seconds", lambda cell, blocks: 1e9 if cell.which == "decode" else plain(cell, blocks))
    assert run(tmp_path) == 0
    err = capsys.readouterr().err
    assert "missing: layer some T16 B1 bfloat16 decode cuda balanced: no time left" in err
    assert err.rstrip().endswith("1 cells are missing")
    assert (tmp_path / "missing.txt").read_text().count("\n") == 1
    before, _ = records.read(tmp_path / "latency.jsonl")
    assert len({r["cell"] for r in before if r["kind"] == "latency"}) == 2
    monkeypatch.setattr(order, "seconds", plain)
    assert run(tmp_path) == 0
    found, _ = records.read(tmp_path / "latency.jsonl")
    assert found[: len(before)] == before
    assert {r["cell"] for r in found[len(before) :]} == {"layer some T16 B1 bfloat16 decode cuda balanced"}


def test_a_campaign_without_time_measures_nothing(small, tmp_path, capsys):
    assert run(tmp_path, "--within", "0.001") == 0
    found, _ = records.read(tmp_path / "latency.jsonl") if (tmp_path / "latency.jsonl").exists() else ([], [])
    assert [r for r in found if r["kind"] == "latency"] == []
    out, err = capsys.readouterr()
    assert "No time was left for 8 of 8 cells." in out and "7 cells are missing" in err


def test_a_campaign_wants_a_place_for_what_it_finds(capsys):
    assert main(["campaign"]) == 2
    assert capsys.readouterr().err == (
        "python -m bench.latency campaign: error: the following arguments are required: --out-dir\n"
    )


def test_gates_alone(small, capsys):
    assert main(["gates", "--layer", "some", "--device", "cuda", "--dtype", "bfloat16", "--format", "csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 2 * 2 * 7
    assert all(line.rstrip(",").endswith("right") or ",right," in line for line in lines[1:])
    assert any("none: called a synchronizing" in line for line in lines if ",loop," in line)


def test_a_gate_that_fails_is_a_row_and_exit_code_1(small, capsys, monkeypatch):
    from headcount.models.kernels import dense_all

    plain = dense_all.fused_attend
    monkeypatch.setattr(dense_all, "fused_attend", lambda *args, **how: 1.2 * plain(*args, **how))
    assert main(["gates", "--layer", "some", "--device", "cuda", "--dtype", "bfloat16", "--format", "csv"]) == 1
    out, err = capsys.readouterr()
    assert out.count("wrong: relative error") == 4 and err.count("some dense-all: wrong") == 4


def test_every_stage_names_layers_and_models_that_there_are():
    for stage in order.STAGES:
        assert set(stage.names) <= set(LAYERS if stage.seq_lens else PRESETS), stage


def test_the_order_is_that_of_the_documents():
    cells = campaign_cells()
    assert len(cells) == len({cell.key for cell in cells})
    first = [(c.name, c.seq_len, c.which) for c in cells[:30]]
    assert first[0] == ("moa-8K8E128D", 128, "forward") and {name for name, *_ in first} == set(order.HEADLINE)
    assert [c.which for c in cells[30:39]] == ["decode"] * 9
    assert {c.name.rpartition("-")[0] for c in cells[39:51]} == {"moh-32x64", "moh-llama3"}
    assert [c.name for c in cells[-8:-6]] == ["llama3-8b", "moh-llama3-8b"]
    # the headline once more, in cells of their own that are thought to take longer
    assert [(c.name, c.seq_len, c.blocks) for c in cells[-6:]] == [
        (n, t, 60) for t in (128, 2048) for n in order.HEADLINE
    ]
    first = {c.key: c for c in cells[:30]}
    for cell in cells[-6:]:
        before = first[cell.key.removesuffix(" again in 60 blocks")]
        assert before.blocks is None and seconds(cell, 20) > seconds(before, 20) + 1
        assert seconds(cell, 20) == seconds(before, 60)
    others = [replace(cells[0], name=name) for name in ("moa-7K", "moa-3K")]
    assert by_value([others[0], *cells[::-1], others[1]]) == [*cells, *others]


def test_every_cell_is_thought_to_fit_into_a_call():
    assert max(seconds(cell, 20) for cell in campaign_cells()) < 580 * 0.6


@pytest.mark.parametrize("macs, call_s", [(10**12, 0.02), (10**13, 0.2), (3 * 10**13, 0.2), (10**9, 0.00002)])
def test_a_cell_is_thought_to_take_its_inputs_its_arms_parameters_and_calls(macs, call_s, monkeypatch):
    """At 50 T MAC/s, and at 150 T MAC/s where a call is of more than 10 T MACs; a block takes 5 ms at least."""
    work = Work(macs, 7, params=10**8, active_params=7)
    monkeypatch.setattr(order, "executed_work", lambda cell, spec: work)
    cell = Cell("layer", "moa-8K8E128D", 7, 2, "bfloat16", "forward", "cuda", "balanced", ("fused",))
    monkeypatch.setattr(Cell, "arms", lambda self: ["one", "another"])
    of_an_arm = 0.45 + 0.5 + 12 * call_s + 2 * 11 * max(0.005, call_s)
    assert seconds(cell, 11) == pytest.approx(0.5 + 2 * of_an_arm, rel=1e-12)


def test_three_calls_of_ten_minutes_are_thought_to_hold_every_layer():
    cells = [cell for cell in campaign_cells() if cell.subject == "layer"]
    took = [seconds(cell, 20) for cell in cells]
    # a first call measures the headline, decoding and MoH after its gates
    assert sum(took[:51]) < 580 * 0.7
    assert sum(took) < 3 * 580
    assert all(0.5 < s < 60 for s in took)
