"""From raw samples to ratios, share of peak and verdicts: answers by hand."""

import pytest

from headcount.bench.latency import measure
from headcount.bench.latency.implementations import ImplSpec
from headcount.bench.latency.measure import TimedImpl
from headcount.bench.latency.table import Columns

WALL_S = [0.002] * 9 + [0.006]


RECORD = {
    "layer": "moa", "role": "subject", "implementation": "triton", "implementation_used": "triton", "seq_len": 128,
    "batch_size": 8, "dtype": "bfloat16", "pass": "forward", "routing": "balanced", "status": "timed",
    "macs": 4 * 10**9, "least_bytes": 3 * 10**6, "tokens": 1024, "timed_by": "graph",
    "wall_ms": [1000 * s for s in WALL_S], "gpu_ms": [0.5] * 10, "no_graph_because": None, "roofline_ms": 0.125,
    "peaks": {"macs_per_s": 4e13, "bytes_per_s": 4e12}, "peak_memory_bytes": None, "telemetry": None,
    "error": 0.00071, "largest_share": 0.5, "blocks": 10, "environment": {"device": "NVIDIA H200"},
    **measure.NO_RATIOS,
}  # fmt: skip


def impl(role, wall_s, gpu_s=()):
    graph = object() if gpu_s else None
    return TimedImpl(role, None, spec=ImplSpec("", None, "", role), wall_s=wall_s, gpu_s=list(gpu_s), graph=graph)


def compared(control, *impls):
    measure.fill_ratios(impls, control)
    return impls[0].ratios


def test_ratios_are_paired_by_block():
    """The machine slows down to a third: every block says 2."""
    drift = [0.001, 0.002, 0.003]
    subject = compared(None, impl("subject", [2 * s for s in drift]), impl("mqa", [1, 1, 1]), impl("mha", drift))
    assert subject["to_mha"] == pytest.approx({"value": 2.0, "low": 2.0, "high": 2.0})


def test_difference_within_noise_is_no_evidence():
    """5 % over dense MQA, where the same code twice differs by 10 %."""
    subject = compared(impl("mqa", [0.0022] * 4), impl("subject", [0.0021] * 4), impl("mqa", [0.002] * 4))
    assert subject["overhead"]["value"] == pytest.approx(1.05) and subject["overhead_verdict"] == "no evidence"
    subject = compared(impl("mqa", [0.002] * 4), impl("subject", [0.0021] * 4), impl("mqa", [0.002] * 4))
    assert subject["overhead_verdict"] == "slower"


def test_graphs_are_compared_with_graphs():
    mqa, control = impl("mqa", [0.008] * 3, [0.001] * 3), impl("mqa", [0.012] * 3, [0.001] * 3)
    subject = compared(control, impl("subject", [0.004] * 3, [0.0012] * 3), mqa)
    assert subject["overhead"]["value"] == pytest.approx(1.2) and subject["overhead_by"] == "graph"
    assert subject["noise_floor"]["value"] == pytest.approx(1.0)
    assert subject["noise_floor_wall"]["value"] == pytest.approx(1.5)
    assert subject["overhead_verdict"] == "slower"


def test_columns_of_a_record():
    values = Columns("cuda").values(RECORD)
    assert (values["gpu_ms"], values["wall_ms"]) == (0.5, 2.0)
    # of ten blocks the slowest is the tail alone: 2 + 0.1 (6 - 2) by interpolation
    assert values["p10_ms"] == 2.0 and values["p90_ms"] == pytest.approx(2.4)
    # 4e9 MACs in half a millisecond, of 4e13 a second
    assert values["rate"] == pytest.approx(8000.0) and values["peak_share"] == pytest.approx(20.0)
    assert values["over_bound"] == pytest.approx(4.0)
    assert values["tokens_per_s"] == 2_048_000
    # 4e9 MACs at half of 989.5 TFLOP/s
    assert values["estimate_ms"] == pytest.approx(1000 * 4e9 / 494.75e12)


def test_data_sheet_replaces_peaks():
    from headcount.bench.hardware import HARDWARE

    values = Columns("cuda", HARDWARE["a100"]).values(RECORD | {"least_bytes": 2_039_000_000})
    assert values["peak_share"] == pytest.approx(100 * 8e12 / 156e12)
    # bytes take longer: a millisecond
    assert values["over_bound"] == pytest.approx(0.5)
    assert Columns("cuda", HARDWARE["a100"]).values(RECORD | {"least_bytes": None})["over_bound"] is None
