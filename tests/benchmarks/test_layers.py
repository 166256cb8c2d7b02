"""Attention layers under pytest-benchmark: the arms of bench.latency at a few sizes, for its save, compare and fail.

``pytest tests/benchmarks/test_layers.py --benchmark-only`` runs them; callables synchronise, so that wall time is what
a user waits.
"""

import pytest
import torch

from headcount.bench.case import ledger_of
from headcount.bench.latency.cells import Cell
from headcount.bench.latency.implementations import ArmSpec, layer_arms
from headcount.bench.latency.roofline import pass_macs
from headcount.bench.latency.runs import make_run
from headcount.bench.latency.shared import Shared

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CASES = [
    (arm, seq_len, which)
    for name in ("moa-8K8E128D", "moa-16K32E256D")
    for arm in layer_arms(name, None, "cpu")
    for seq_len in (128, 512)
    for which in ("forward", "both")
]


def case_id(case: tuple[ArmSpec, int, str]) -> str:
    arm, seq_len, which = case
    return f"{arm.name}-{arm.impl}-T{seq_len}-{which}"


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_layer(benchmark, case):
    arm, seq_len, which = case
    dtype = "bfloat16" if DEVICE == "cuda" else "float32"
    cell = Cell("layer", arm.name, seq_len, max(1, 1024 // seq_len), dtype, which, DEVICE, "balanced")
    run = make_run(cell, arm, Shared(cell, arm.config))
    lengths = {"batch_size": cell.batch_size, "tgt_len": seq_len, "src_len": seq_len}
    benchmark.extra_info["macs"] = pass_macs(ledger_of(arm.config, lengths), which)
    benchmark.extra_info["device"] = DEVICE
    benchmark.pedantic(_synchronous, args=(run.call,), rounds=5, iterations=1, warmup_rounds=1)
    benchmark.extra_info["impl_used"] = run.impl_used()


def _synchronous(call):
    call(0)
    if DEVICE == "cuda":
        torch.cuda.synchronize()
