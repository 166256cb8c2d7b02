"""A campaign on the fake device: its order, its time limit, and its records."""

import json

import pytest

from headcount.bench import records
from headcount.bench.latency import campaign, gates
from headcount.bench.latency.__main__ import main
from headcount.bench.latency.campaign import campaign_cases, describe_cache
from headcount.bench.latency.timing_cases import TimingCase

SHAPES = [(7, "forward", None), (16, "decode", None), (5, "both", None), (7, "forward", 3)]
CASES = [
    TimingCase("layer", "dense", seq_len, 2, "bfloat16", which, "cuda", "balanced", blocks=blocks)
    for seq_len, which, blocks in SHAPES
]


@pytest.fixture
def small_campaign(cuda, quick, monkeypatch):
    """List few small cases, and checks of one layer."""
    parts = {"models": CASES[:2], "layers": CASES[2:], "compiled": [], "more-layers": []}
    plain = campaign.part_cases
    monkeypatch.setattr(
        campaign,
        "part_cases",
        lambda part, *how: dict.fromkeys(parts[part], 4.0) if part in parts else plain(part, *how),
    )
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
    timed = [r for r in found if r.blocks]
    assert list(dict.fromkeys(r.cell for r in timed)) == [case.key for case in CASES]
    assert {r.status for r in timed} == {"timed"} and {r.environment["commit"] for r in timed} == {"abc"}
    again = [r for r in timed if r.again]
    once = [r for r in timed if f"{r.cell} again in 3 blocks" == again[0].cell]
    assert [len(r.wall_ms) for r in (*once, *again)] == [2, 3]
    # two dtypes, two passes, two shapes
    checked = [r.status for r in found if not r.blocks]
    assert checked == ["agrees"] * 8
    env = json.loads((tmp_path / "env.json").read_text())
    assert env["gpu"]["name"] == "NVIDIA H200" and "GPU-0" not in str(env)
    # names of files are recorded without folders of the machine
    assert env["command"][:4] == ["bench.latency", "campaign", "--out-dir", tmp_path.name]
    assert env["command"][-2:] == ["--within", "1000"] and "abc" not in env["command"]
    assert "missing" not in err and "GPU and wall time on NVIDIA H200" in out


def test_each_part_stores_its_records(small_campaign, tmp_path):
    for part, stored in (("layers", 2), ("models", 4), ("checks", 12)):
        assert run(tmp_path, "--part", part) == 0
        found, _ = records.read(tmp_path / "latency.jsonl")
        assert len({r.cell for r in found}) == stored
    before = (tmp_path / "latency.jsonl").read_bytes()
    assert run(tmp_path) == 0 and (tmp_path / "latency.jsonl").read_bytes() == before


def test_compiled_kernels_are_counted(small_campaign, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    assert run(tmp_path / "out", "--part", "layers") == 0
    assert capsys.readouterr().err.startswith(f"0 compiled kernels in {tmp_path}\n")
    for key, version in (("a", "3.6.0"), ("b", "3.6.0"), ("c", "3.9.0")):
        (tmp_path / key).mkdir()
        (tmp_path / key / "mqa_kernel.json").write_text(json.dumps({"triton_version": version}))
        (tmp_path / key / "__grp__mqa_kernel.json").write_text('{"child_paths": {}}')
    (tmp_path / "c" / "broken.json").write_text("[")
    assert describe_cache() == f"3 compiled kernels in {tmp_path}, 2 of Triton 3.6.0, 1 of Triton 3.9.0"


def test_list_states_expected_seconds(capsys):
    argv = ["campaign", "--list", "--part", "checks", "models"]
    assert main([*argv, "--brief"]) == 0
    # 96 checks of 0.7 s each
    brief = capsys.readouterr().out.strip()
    assert brief.startswith("Estimate on an NVIDIA H200: checks 67 s (96 cases), models ")
    assert main([*argv, "--format", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    checks, models = (table["rows"] for table in printed["tables"])
    assert (len(checks), len(models), checks[0]["seconds"]) == (96, 46, 0.7)
    assert models[0] == {"case": "model moh-dit-b2-75 T256 B16 bfloat16 both cuda natural", "seconds": 6}
    total_s = sum(row["seconds"] for row in checks + models)
    assert f"; {total_s:.0f} s in all. Nothing was measured." in brief


def test_listed_cases_are_distinct_and_ordered():
    cases = campaign_cases()
    assert len(cases) == len({case.key for case in cases}) == 46 + 161 + 4
    assert [(case.name, case.seq_len, case.which) for case in cases[:3]] == [
        ("moh-dit-b2-75", 256, "both"), ("moh-dit-b2-75", 256, "forward"), ("moh-dit-l2-75", 256, "forward"),
    ]  # fmt: skip
    assert {case.which for case in cases if case.requested} == {"forward", "both"}
    assert {case.requested for case in cases if case.requested} == {("compiled", "triton")}
    # every routed model has a dense one beside it, and no implementation that was measured before
    for case in cases:
        if case.subject == "model":
            specs = case.impls()
            assert [spec.role for spec in specs].count("dense") == 1, case.key
            assert not {"loop", "grouped"} & {spec.impl for spec in specs}


def test_tokens_limit_every_case():
    for case in campaign_cases(tokens=64):
        fixed = case.subject == "model" and set(case.config.lengths) == {"batch_size"}
        assert case.batch_size == 1 if fixed else case.batch_size * case.seq_len <= 64
