"""Ratios, verdicts and printed values of hand-made samples."""

from dataclasses import replace

import pytest

from headcount.bench.latency import measure, table
from tests.bench.latency.conftest import latency_record


def impl(role, wall_ms, gpu_ms=None):
    return latency_record(role=role, layer=role, wall_ms=wall_ms, gpu_ms=gpu_ms, no_graph_because=None)


def ratios_of(control, *rows):
    return measure.add_ratios(rows, control)[0]


def test_ratios_are_paired_by_block():
    """The machine slows down to a third; the ratio of each block is 2."""
    drift = [0.001, 0.002, 0.003]
    mqa = impl("mqa", [1, 1, 1])
    subject = ratios_of(mqa, impl("subject", [2 * s for s in drift]), mqa, impl("mha", drift))
    assert subject.to_mha == pytest.approx({"value": 2.0, "low": 2.0, "high": 2.0})


def test_difference_within_noise_is_no_evidence():
    """5 % over dense MQA, where the A/A control differs by 10 %."""
    subject = ratios_of(impl("mqa", [0.0022] * 4), impl("subject", [0.0021] * 4), impl("mqa", [0.002] * 4))
    assert subject.overhead["value"] == pytest.approx(1.05) and subject.overhead_verdict == "no difference measured"
    subject = ratios_of(impl("mqa", [0.002] * 4), impl("subject", [0.0021] * 4), impl("mqa", [0.002] * 4))
    assert subject.overhead_verdict == "slower"


def test_graphs_are_compared_with_graphs():
    mqa, control = impl("mqa", [0.008] * 3, [0.001] * 3), impl("mqa", [0.012] * 3, [0.001] * 3)
    subject = ratios_of(control, impl("subject", [0.004] * 3, [0.0012] * 3), mqa)
    assert subject.overhead["value"] == pytest.approx(1.2) and subject.overhead_by == "graph"
    assert subject.noise_floor["value"] == pytest.approx(1.0)
    assert subject.noise_floor_wall["value"] == pytest.approx(1.5)
    assert subject.overhead_verdict == "slower"


def test_few_eager_calls_give_no_noise_floor():
    mqa = impl("mqa", [0.008] * 3, [0.001] * 5)
    subject = replace(impl("subject", [0.004] * 3, [0.0012] * 5), noise_floor=None, noise_floor_wall=None)
    subject = ratios_of(mqa, subject, mqa)
    assert subject.overhead_by == "graph" and subject.noise_floor["value"] == pytest.approx(1.0)
    assert subject.noise_floor_wall is None


@pytest.mark.parametrize("order", [1, -1])
def test_fastest_dense_implementation_is_compared(order):
    slow, fast = impl("mqa", [0.004] * 3), replace(impl("mqa", [0.002] * 3), implementation="packed")
    subject = ratios_of(slow, impl("subject", [0.003] * 3), *(slow, fast)[::order])
    assert subject.overhead["value"] == pytest.approx(1.5)


def test_values_of_a_record():
    work = {"macs": 4 * 10**9, "executed_macs": 4 * 10**9, "executed_bytes": 3 * 10**6, "tokens": 1024}
    times = {"wall_ms": [2.0] * 9 + [6.0], "gpu_ms": [0.5] * 10, "roofline_ms": 0.125, "peaks": {"macs_per_s": 4e13}}
    record = latency_record(**work, **times, no_graph_because=None)
    found = {column.key: column.read(record) for column in table.COLUMNS}
    assert (found["gpu_ms"], found["wall_ms"]) == (0.5, 2.0)
    # by linear interpolation, 2 + 0.1 (6 - 2)
    assert found["p10_ms"] == 2.0 and found["p90_ms"] == pytest.approx(2.4)
    # 4e9 MACs in half a millisecond, of 4e13 a second
    assert found["rate"] == pytest.approx(8000.0) and found["peak_share"] == pytest.approx(20.0)
    assert found["over_bound"] == pytest.approx(4.0)
    assert found["tokens_per_s"] == 2_048_000
    # 4e9 MACs at half of 989.5 TFLOP/s
    assert found["estimate_ms"] == pytest.approx(1000 * 4e9 / 494.75e12)
    assert found["over_estimate"] == pytest.approx(0.5 * 494.75e12 / 4e12)
