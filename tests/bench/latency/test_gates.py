"""Correctness checks without timing: what a record holds, which are skipped, and what happens without time."""

from math import nan
from types import SimpleNamespace

import pytest
import torch

from headcount.bench import records
from headcount.bench.latency import gates, measure
from headcount.bench.latency.device_errors import DeviceLost
from headcount.bench.latency.timing_cases import TimingCase
from headcount.bench.render import realised
from tests.bench.output.reading import columns

SHAPE = dict(batch_size=2, dtype="float32", which="both", device="cpu", routing="balanced")


def cases(*lengths):
    return [TimingCase("layer", "some", length, **SHAPE) for length in lengths]


def record(case, status="agrees"):
    return {"layer": "some", "implementation": "loop", "status": status}


def test_record_states_error_bound_and_choices(layers):
    found = list(measure.check_case(TimingCase("layer", "some", 7, **SHAPE, asked=("grouped",))))
    assert [(r["layer"], r["implementation"]) for r in found] == [
        ("some", "grouped"), ("mqa-2x16", "fused"), ("mha-1x64", "fused"), ("mha-2x16", "fused"),
    ]  # fmt: skip
    for one in found:
        assert one["status"] == "agrees" and one["same"] == "yes"
        assert 0 < float(one["error"]) <= float(one["bound"]) and one["core"] and "replay" not in one
    assert [one["choices"] for one in found] == [0, None, None, None]


def test_stored_checks_are_skipped_and_new_ones_stored(monkeypatch, tmp_path):
    checked, path = [], tmp_path / "r.jsonl"
    monkeypatch.setattr(
        measure, "check_case", lambda case: checked.append(case.seq_len) or [record(case, "wrong: off")]
    )
    three = cases(5, 7, 11)
    records.append(path, gates._record(three[1], record(three[1])))
    section = realised(gates.section(three, path))
    assert checked == [5, 11] and columns(section)["T"] == ["5", "7", "11"] and section.below == []
    assert [one["cell"] for one in records.read(path)[0]] == [three[1].key, three[0].key, three[2].key]
    assert [row.failures for row in section.rows] == [
        [f"{three[0].key} some loop: wrong: off"], [], [f"{three[2].key} some loop: wrong: off"],
    ]  # fmt: skip
    assert gates.result([section, section]) == "2 of 6 implementations agree with the reference."


def test_lost_device_is_stored_before_the_restart(monkeypatch, tmp_path):
    def check(case):
        if case.seq_len == 5:
            raise DeviceLost("some loop", "failed: gone")
        return [record(case)]

    seen, path = [], tmp_path / "r.jsonl"
    monkeypatch.setattr(measure, "check_case", check)
    section = realised(gates.section(cases(5, 7), path, on_lost=lambda: seen.append(len(records.read(path)[0]))))
    assert columns(section)["status"] == ["failed: gone", "agrees"] and seen == [1]


CASE = SimpleNamespace(device="cuda")


def test_error_in_a_repeated_call_is_the_status_or_loses_the_device(cuda):
    impl = SimpleNamespace(name="moa loop", call=lambda i: [][i])
    assert measure._check_again(CASE, impl) == ("failed: IndexError: list index out of range", {})
    cuda.dead, impl.call = "unspecified launch failure", lambda i: cuda.check()
    with pytest.raises(DeviceLost, match="^moa loop: failed: AcceleratorError"):
        measure._check_again(CASE, impl)


STALE = "wrong: a replay on other inputs is not right"


@pytest.mark.parametrize("replay, status", [(0.25, "agrees"), (0.5, STALE), (nan, STALE)])
def test_replay_error_is_bounded_and_changed_bits_are_recorded(replay, status, monkeypatch):
    outputs = iter((5.0, 5.0, 5.0, 7.0))
    monkeypatch.setattr("headcount.bench.latency.measure.capture", lambda call, *how: {(1, 3): "graph"}[how])
    monkeypatch.setattr(
        "headcount.bench.latency.correctness.replay_error", lambda *of: {("a run", "graph"): replay}[of]
    )
    impl = SimpleNamespace(run="a run", sets=3, bound=0.25, call=lambda i: torch.full((7,), next(outputs)))
    for same in ("yes", "no"):
        assert measure._check_again(CASE, impl) == (status, {"same": same, "replay": f"{replay:.0e}"})
