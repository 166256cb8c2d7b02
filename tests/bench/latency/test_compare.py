"""Compare two runs row by row."""

import pytest

from headcount.bench.latency.compare import compare
from tests.bench.latency.conftest import latency_record


def record(layer="moa", wall_ms=2.0, gpu_ms=None, **facts):
    samples = {"wall_ms": [wall_ms] * 3, "gpu_ms": gpu_ms and [gpu_ms] * 3, "no_graph_because": None}
    return latency_record(layer=layer, **samples, **facts)


def test_rows_of_only_one_file_are_counted():
    rows, only_a, only_b = compare([record("x"), record("y")], [record("y"), record("z"), record("w")])
    assert (len(rows), only_a, only_b) == (1, 1, 2)


@pytest.mark.parametrize(
    "wide, verdicts",
    [("noise_floor", ["no difference measured", "faster"]), ("noise_floor_wall", ["faster", "no difference measured"])],
)
def test_noise_floor_is_of_the_compared_samples(wide, verdicts):
    """Time is halved by graphs and by wall time; the noise floor of one of them is wider than that."""
    noises = dict.fromkeys(("noise_floor", "noise_floor_wall"), {"value": 1.0, "low": 0.99, "high": 1.01})
    noises[wide] = {"value": 1.0, "low": 0.4, "high": 1.3}
    by_graphs = compare([record(gpu_ms=2.0, **noises)], [record(gpu_ms=1.0)])
    by_wall = compare([record(**noises)], [record(wall_ms=1.0)])
    assert [found[0].verdict for found, _, _ in (by_graphs, by_wall)] == verdicts
