"""Benchmark attention layers with pytest-benchmark: the implementations of bench.latency at a few sizes.

``pytest tests/benchmarks/test_layers.py --benchmark-only`` runs them. Each call synchronises the device.
"""

import pytest
import torch

from headcount.bench.case import ledger_of
from headcount.bench.latency.case_tensors import CaseTensors
from headcount.bench.latency.implementations import ImplSpec, layer_impls
from headcount.bench.latency.roofline import pass_macs
from headcount.bench.latency.runs import make_run
from headcount.bench.latency.timing_cases import TimingCase

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CASES = [
    (impl, seq_len, which)
    for name in ("moa-8K8E128D", "moa-16K32E256D")
    for impl in layer_impls(name, None, "cpu")
    for seq_len in (128, 512)
    for which in ("forward", "both")
]


def case_id(case: tuple[ImplSpec, int, str]) -> str:
    impl, seq_len, which = case
    return f"{impl.name}-{impl.impl}-T{seq_len}-{which}"


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_layer(benchmark, case):
    impl, seq_len, which = case
    dtype = "bfloat16" if DEVICE == "cuda" else "float32"
    case = TimingCase("layer", impl.name, seq_len, max(1, 1024 // seq_len), dtype, which, DEVICE, "balanced")
    run = make_run(case, impl, CaseTensors(case, impl.config))
    lengths = {"batch_size": case.batch_size, "tgt_len": seq_len, "src_len": seq_len}
    benchmark.extra_info["macs"] = pass_macs(ledger_of(impl.config, lengths), which)
    benchmark.extra_info["device"] = DEVICE
    benchmark.pedantic(_synchronous, args=(run.call,), rounds=5, iterations=1, warmup_rounds=1)
    benchmark.extra_info["impl_used"] = run.impl_used()


def _synchronous(call):
    call(0)
    if DEVICE == "cuda":
        torch.cuda.synchronize()
