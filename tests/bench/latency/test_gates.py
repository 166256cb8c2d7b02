"""``latency gates``: correctness checks of timing cases, without timing."""

from headcount.bench import records
from headcount.bench.latency import measure
from headcount.bench.latency.device_errors import DeviceLost
from headcount.bench.latency.session import CheckSession
from headcount.bench.latency.timing_cases import TimingCase
from headcount.bench.render import realised

SHAPE = dict(batch_size=2, dtype="float32", which="both", device="cpu", routing="balanced")
CASES = [TimingCase("layer", "some", length, **SHAPE) for length in (5, 7)]


def test_record_states_error_bound_and_choices(layers):
    found = measure.check_case(TimingCase("layer", "some", 7, **SHAPE, requested=("grouped",)))
    assert [r["layer"] for r in found] == ["some", "mqa-2x16", "mha-1x64", "mha-2x16"]
    for one in found:
        assert one["status"] == "agrees" and one["same"] == "yes"
        assert 0 < float(one["error"]) <= float(one["bound"]) and one["core"] and one["replay"] is None
    assert [one["choices"] for one in found] == [0, None, None, None]


def fake_check_case(case):
    """Return a record for each implementation without running it; raise DeviceLost for a length of 5."""
    if case.seq_len == 5:
        raise DeviceLost("some loop", "failed: gone")
    return [impl.check_record() | {"status": "agrees"} for impl in measure.failed_impls(case, KeyError())]


def test_lost_device_is_stored_and_the_next_case_runs(layers, monkeypatch, tmp_path):
    monkeypatch.setattr(measure, "check_case", fake_check_case)
    section = realised(CheckSession(tmp_path / "r.jsonl").section(CASES))
    skipped = "skipped: some loop left the device unusable"
    assert {row.values["status"] for row in section.rows} == {"failed: gone", skipped, "agrees"}
    assert {r["status"] for r in records.read(tmp_path / "r.jsonl")[0]} == {"failed: gone", skipped, "agrees"}
