"""A campaign on the fake device: its order, its time limit, and its records."""

import json
from dataclasses import replace

import pytest

from headcount.bench import records
from headcount.bench.latency import gates, schedule
from headcount.bench.latency.__main__ import main
from headcount.bench.latency.schedule import by_value, campaign_cases
from headcount.bench.latency.timing_cases import TimingCase

SHAPES = [(7, "forward", None), (16, "decode", None), (5, "both", None), (7, "forward", 3)]
CASES = [
    TimingCase("layer", "dense", seq_len, 2, "bfloat16", which, "cuda", "balanced", blocks=blocks)
    for seq_len, which, blocks in SHAPES
]


@pytest.fixture
def small_campaign(cuda, quick, monkeypatch):
    """List few small cases, and checks of one layer."""
    monkeypatch.setattr(schedule, "campaign_cases", lambda *_: CASES)
    monkeypatch.setattr(gates, "LAYERS", ("dense",))
    monkeypatch.setattr(gates, "SHAPES", ((7, 2, "balanced"), (1, 1, "balanced")))
    return cuda


def run(tmp_path, *more):
    return main(["campaign", "--out-dir", str(tmp_path), "--tokens", "14", "--blocks", "2", "--commit", "abc", *more])


def test_whole_campaign(small_campaign, tmp_path, capsys):
    assert run(tmp_path, "--within", "1000") == 0
    out, err = capsys.readouterr()
    found, problems = records.read(tmp_path / "latency.jsonl")
    assert problems == []
    timed = [r for r in found if r["blocks"]]
    assert list(dict.fromkeys(r["cell"] for r in timed)) == [case.key for case in CASES]
    assert {r["status"] for r in timed} == {"timed"} and {r["environment"]["commit"] for r in timed} == {"abc"}
    again = [r for r in timed if r["again"]]
    once = [r for r in timed if f"{r['cell']} again in 3 blocks" == again[0]["cell"]]
    assert [len(r["wall_ms"]) for r in (*once, *again)] == [2, 3]
    # two dtypes, two passes, two shapes
    checked = [r["status"] for r in found if not r["blocks"]]
    assert checked == ["agrees"] * 8
    env = json.loads((tmp_path / "env.json").read_text())
    assert env["gpu"]["uuid"] == "GPU-0"
    # names of files are recorded without folders of the machine
    assert env["command"][:4] == ["bench.latency", "campaign", "--out-dir", tmp_path.name]
    assert env["command"][-2:] == ["--within", "1000"] and "abc" not in env["command"]
    assert "missing" not in err and "GPU and wall time on NVIDIA H200" in out


def test_listed_cases_are_distinct_and_ordered():
    cases = campaign_cases()
    assert len(cases) == len({case.key for case in cases}) == 183
    assert (cases[0].name, cases[0].seq_len, cases[0].which) == ("moa-8K8E128D", 128, "forward")
    others = [replace(cases[0], name=name) for name in ("moa-7K", "moa-3K")]
    assert by_value([others[0], *cases[::-1], others[1]]) == [*cases, *others]
