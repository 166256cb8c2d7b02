"""The whole record of a timed implementation, by hand."""

import pytest

from headcount.bench.latency import correctness, measure
from headcount.bench.latency.timing_cases import TimingCase
from tests.bench.latency.conftest import PEAKS

TOKENS, HEADS, SELECTED, WIDTH, HEAD = 2 * 7, 6, 2, 64, 16
CELL = TimingCase("layer", "some", 7, 2, "bfloat16", "forward", "cuda", "balanced", ("dense-all",))
GPU_S = {"some dense-all": 0.006, "mqa-2x16 fused": 0.004, "mha-1x64 fused": 0.003, "mha-2x16 fused": 0.002}
ROUTER, SHARED, EXPERT = WIDTH * HEADS, 2 * WIDTH * HEAD, 2 * WIDTH * HEAD
"""Weights: the router's, of keys and values, of one expert's queries and output."""


def ratio(value):
    return {"value": pytest.approx(value), "low": pytest.approx(value), "high": pytest.approx(value)}


def macs(heads):
    """Projections, and 7 keys for each query: scores and values."""
    return TOKENS * (ROUTER + SHARED + heads * (EXPERT + 2 * 7 * HEAD))


WHAT = {
    "kind": "latency", "cell": "layer some T7 B2 bfloat16 forward cuda balanced dense-all", "subject": "layer",
    "name": "some", "seq_len": 7, "batch_size": 2, "dtype": "bfloat16", "device": "cuda", "routing": "balanced",
    "pass": "forward", "again": False, "tokens": TOKENS, "layer": "some", "role": "subject", "blocks": 2, "smoke": True,
    "implementation": "dense-all", "macs": macs(SELECTED), "executed_macs": macs(HEADS),
    "params": ROUTER + SHARED + HEADS * EXPERT, "active_params": ROUTER + SHARED + SELECTED * EXPERT,
    # every expert is used; inputs and outputs once; two bytes each
    "least_bytes": 2 * (ROUTER + SHARED + HEADS * EXPERT + 2 * TOKENS * WIDTH),
    "executed_bytes": 2 * (ROUTER + SHARED + HEADS * EXPERT + 2 * TOKENS * WIDTH),
    "roofline_ms": pytest.approx(1000 * macs(SELECTED) / 1e9),
    "peaks": {"macs_per_s": 1e9, "bytes_per_s": 1e9, "how": "made up"}
    | dict.fromkeys(("read_bytes_per_s", "median_macs_per_s", "median_bytes_per_s")),
}  # fmt: skip
MEASURED = {
    "status": "timed", "implementation_used": "dense-all", "backends": ["flash"], "timed_by": "graph",
    "error": 0.25, "bound": 0.5, "choices": {"tokens": 11, "clear": 7, "other": 0}, "replay_error": 0.125,
    # 28 choices among six experts in turn
    "largest_share": pytest.approx(5 / 28),
    "wall_ms": [7.0, 7.0], "gpu_ms": [6.0, 6.0], "no_graph_because": None, "calls_per_block": 5, "replays_per_block": 3,
    # as many sets as there are at most, of 14 tokens of 64 numbers
    "sets": 32, "rotated_bytes": 32 * TOKENS * WIDTH * 2, "peak_memory_bytes": 1009,
    "noise_floor": ratio(1), "noise_floor_wall": ratio(1),
    "to_mha": ratio(2), "to_inner": ratio(3), "overhead": ratio(1.5), "to_dense": None,
    **dict.fromkeys(("to_mha_verdict", "to_inner_verdict", "overhead_verdict"), "slower"), "to_dense_verdict": None,
    **dict.fromkeys(("to_mha_by", "to_inner_by", "overhead_by"), "graph"), "to_dense_by": None,
}  # fmt: skip


@pytest.fixture
def subject(cuda, monkeypatch):
    """Return the record of the first implementation, with given times and error."""
    cuda.memory = 1009

    def interleave(impls, **how):
        for impl in impls:
            impl.wall_s, impl.gpu_s, impl.graph = [0.007] * 2, [GPU_S[impl.name]] * 2, object()
            impl.calls, impl.replays, impl.replay_error = 5, 3, 0.125

    checked = correctness.CheckResult(0.25, 0.5, "the output", 11, 7, 0, ("flash",))
    monkeypatch.setattr(correctness.CorrectnessCheck, "check", lambda self: checked)
    monkeypatch.setattr(measure, "interleave", interleave)
    return lambda: next(measure.measure_case(CELL, PEAKS, blocks=2))


def test_record_of_timed_impl(subject):
    assert subject() == WHAT | MEASURED


def test_record_of_untimed_impl(layers):
    (found, *_) = measure.failed_case(CELL, ValueError("before"), 2)
    unknown = {"peaks": dict.fromkeys(WHAT["peaks"]) | {"macs_per_s": 1.0, "bytes_per_s": 1.0, "how": "not measured"}}
    unknown["roofline_ms"] = 1000.0 * macs(SELECTED)
    assert found == WHAT | dict.fromkeys(MEASURED) | unknown | {"status": "failed: ValueError: before"}
