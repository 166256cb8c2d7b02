"""Estimates of times from a data sheet, and counts of kernels."""

from dataclasses import replace

import pytest

from headcount.bench.hardware import HARDWARE, by_device
from headcount.bench.latency import estimate
from headcount.bench.latency.implementations import ImplSpec
from headcount.bench.latency.launch_count import count_launches
from headcount.bench.latency.timing_cases import TimingCase
from headcount.models.configs.layers import layer
from tests.bench.latency.conftest import latency_record


@pytest.mark.parametrize("seq_len, which, limit", [
    (10, "forward", "kernels"), (8192, "forward", "MACs"), (8192, "both", "MACs"), (65536, "decode", "bytes"),
])  # fmt: skip
def test_bound_is_longest_of_three(seq_len, which, limit):
    case = TimingCase("layer", "mha-base", seq_len, 2, "bfloat16", which, "cuda", "balanced", ("fused",))
    (row,) = estimate.table([case], HARDWARE["h200"]).rows
    us = {"MACs": row.macs / 494.75e6, "bytes": row.bytes / 4.8e6, "kernels": 1.5 * (row.launches or 0)}
    assert row.limit == limit and row.estimate_us == pytest.approx(us[limit]) == max(us.values())


@pytest.mark.parametrize("device, name", [
    ("NVIDIA A100-SXM4-40GB", "a100-40gb"), ("NVIDIA H200 NVL", None), ("NVIDIA H100", None), ("", None),
])  # fmt: skip
def test_data_sheet_matches_whole_device_name(device, name):
    assert by_device(device) is HARDWARE.get(name)


@pytest.mark.parametrize("executed, ms", [({}, 1), ((4 * 494_750_000, 7), 4), ((494_750_000, 48_000_000), 10)])
def test_estimate_of_record_uses_executed_work(executed, ms):
    work = dict.fromkeys(("executed_macs", "executed_bytes")) | {"macs": 494_750_000, "least_bytes": 5}
    work |= dict(zip(("executed_macs", "executed_bytes"), executed, strict=False))
    assert estimate.of_record(latency_record(**work)) == pytest.approx(ms / 1000)


def test_launches_exclude_views():
    case = TimingCase("layer", "mha-base", 10, 2, "bfloat16", "forward", "cuda", "balanced")
    spec = ImplSpec("mha-base", layer("mha-base"), "fused", "subject")
    # projections of q, k and v, the core, the output projection; a decode step also stores a key and a value
    assert count_launches(case, spec) == 5
    assert count_launches(replace(case, which="decode"), spec) == 5 + 2
    assert count_launches(replace(case, which="both"), spec) is None


def test_synchronizing_impl_has_no_launch_count():
    case = TimingCase("layer", "moa-8K8E128D", 10, 2, "bfloat16", "forward", "cuda", "balanced")
    found = {spec.impl: count_launches(case, spec) for spec in case.impls(any_device=True) if spec.impl != "triton"}
    assert [impl for impl, number in found.items() if number is None] == ["loop"] and found["dense-all"] < 16
