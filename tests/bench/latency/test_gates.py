"""``latency gates``: correctness checks of timing cases, without timing."""

from headcount.bench.latency import measure, table
from headcount.bench.latency.timing_cases import TimingCase

SHAPE = dict(batch_size=2, dtype="float32", which="both", device="cpu", routing="balanced", blocks=0)


def test_row_states_error_bound_and_choices(layers):
    found = measure.measure_case(TimingCase("layer", "some", 7, **SHAPE, requested=("grouped",)), None, blocks=0)
    rows = [table.values(record) for record in found]
    assert [row["layer"] for row in rows] == ["some", "mqa-2x16", "mha-1x64", "mha-2x16"]
    for one in rows:
        assert one["status"] == "agrees" and one["same_bits"] == "yes" and one["wall_ms"] is None
        assert 0 < float(one["error"]) <= float(one["bound"]) and one["core"] and one["replay_error"] is None
    assert [one["other_choices"] for one in rows] == [0, None, None, None]
