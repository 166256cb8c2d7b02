"""Correctness checks without timing: what a record holds, and which cases are skipped."""

from headcount.bench import records
from headcount.bench.latency import gates, measure
from headcount.bench.latency.device_errors import DeviceLost
from headcount.bench.latency.timing_cases import TimingCase
from headcount.bench.render import realised

AGREES = {"layer": "some", "implementation": "loop", "status": "agrees"}
SHAPE = dict(batch_size=2, dtype="float32", which="both", device="cpu", routing="balanced")
CASES = [TimingCase("layer", "some", length, **SHAPE) for length in (5, 7, 11)]


def test_record_states_error_bound_and_choices(layers):
    found = list(measure.check_case(TimingCase("layer", "some", 7, **SHAPE, requested=("grouped",))))
    assert [r["layer"] for r in found] == ["some", "mqa-2x16", "mha-1x64", "mha-2x16"]
    for one in found:
        assert one["status"] == "agrees" and one["same"] == "yes"
        assert 0 < float(one["error"]) <= float(one["bound"]) and one["core"] and "replay" not in one
    assert [one["choices"] for one in found] == [0, None, None, None]


def test_stored_checks_are_skipped_and_new_ones_stored(monkeypatch, tmp_path):
    checked, path = [], tmp_path / "r.jsonl"
    monkeypatch.setattr(
        measure, "check_case", lambda case: checked.append(case.seq_len) or [AGREES | {"status": "wrong: off"}]
    )
    records.append(path, gates._record(CASES[1], AGREES))
    section = realised(gates.section(CASES, path))
    assert checked == [5, 11] and [bool(row.failures) for row in section.rows] == [True, False, True]
    assert [one["cell"] for one in records.read(path)[0]] == [CASES[1].key, CASES[0].key, CASES[2].key]


def test_lost_device_is_stored_before_the_restart(monkeypatch, tmp_path):
    def check(case):
        if case.seq_len == 5:
            raise DeviceLost("some loop", "failed: gone")
        return [AGREES]

    seen, path = [], tmp_path / "r.jsonl"
    monkeypatch.setattr(measure, "check_case", check)
    realised(gates.section(CASES[:2], path, on_lost=lambda reason: seen.append(len(records.read(path)[0]))))
    assert [one["status"] for one in records.read(path)[0]] == ["failed: gone", "agrees"] and seen == [1]
