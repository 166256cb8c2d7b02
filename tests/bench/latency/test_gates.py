"""``latency gates``: correctness checks of timing cases, without timing."""

from headcount.bench.latency import measure, table
from headcount.bench.latency.timing_cases import TimingCase
from tests.bench.latency.conftest import ENVIRONMENT

SHAPE = dict(batch_size=2, dtype="float32", which="both", device="cpu", routing="balanced", blocks=0)


def test_row_states_error_bound_and_choices(layers):
    case = TimingCase("layer", "some", 7, **SHAPE, requested=("grouped",))
    found = measure.measure_case(case, None, environ=ENVIRONMENT, blocks=0)
    assert not any(record.wall_ms for record in found)
    rows = [{column.key: column.read(record) for column in table.CHECK_COLUMNS} for record in found]
    assert [row["layer"] for row in rows] == ["some", "mqa-2x16", "mha-1x64", "mha-2x16"]
    for one in rows:
        assert one["status"] == "agrees" and one["same_bits"] == "yes"
        assert 0 < float(one["error"]) <= float(one["bound"]) and one["core"] and one["replay_error"] is None
    assert [one["other_choices"] for one in rows] == [0, None, None, None]
