"""Two runs joined row by row."""

from dataclasses import MISSING, fields

import pytest

from headcount.bench import records
from headcount.bench.latency.compare import compare

OPTIONAL = [field.name for field in fields(records.LatencyRecord) if field.default is MISSING]


def record(layer="moa", wall=(2.0, 2.0, 2.0), device="cpu A", **facts):
    return dict.fromkeys(OPTIONAL) | {
        "subject": "layer", "name": "moa", "dtype": "float32", "routing": "balanced", "pass": "forward",
        "role": "subject", "status": "timed", "macs": 7, "smoke": False, "kind": "latency", "cell": "layer moa T7",
        "layer": layer, "implementation": "grouped", "wall_ms": list(wall), "gpu_ms": None,
        "noise_floor": {"value": 1.0, "low": 0.99, "high": 1.01}, "environment": {"device": device, "time": "2026"},
        **facts,
    }  # fmt: skip


def test_rows_of_only_one_file_are_counted():
    rows, only_a, only_b = compare([record("x"), record("y")], [record("y"), record("z"), record("w")])
    assert (len(rows), only_a, only_b) == (1, 1, 2)


@pytest.mark.parametrize(
    "wide, verdicts", [("noise_floor", ["no evidence", "faster"]), ("noise_floor_wall", ["faster", "no evidence"])]
)
def test_noise_floor_is_of_the_compared_samples(wide, verdicts):
    """Half of the time, by graphs and by the wall, where one of the two is as unsteady as that."""
    noises = dict.fromkeys(("noise_floor", "noise_floor_wall"), {"value": 1.0, "low": 0.99, "high": 1.01})
    noises[wide] = {"value": 1.0, "low": 0.4, "high": 1.3}
    of_graphs = compare([record(gpu_ms=[2.0], **noises)], [record(gpu_ms=[1.0])])
    of_walls = compare([record(**noises)], [record(wall=(1.0, 1.0, 1.0))])
    assert [found[0]["verdict"] for found, _, _ in (of_graphs, of_walls)] == verdicts
