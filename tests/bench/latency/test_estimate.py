"""The estimate: arithmetic on a data sheet, labelled as such wherever it is printed."""

import csv
import io
from dataclasses import replace

import pytest

from headcount.bench.hardware import HARDWARE, _rates, by_device
from headcount.bench.latency import estimate
from headcount.bench.latency.__main__ import main
from headcount.bench.latency.implementations import ImplSpec
from headcount.bench.latency.launch_count import launches
from headcount.bench.latency.timing_cases import ELEMENT_BYTES, TimingCase
from headcount.models.configs.layers import layer


@pytest.mark.parametrize(
    "macs, moved, kernels, expected",
    [
        (494.75e9, 1, 1, (1e-3, "MACs")),
        (1, 4.8e9, 1, (1e-3, "bytes")),
        (1, 1, 1000, (1.5e-3, "kernels")),
        (494.75e9, 4.7e9, None, (1e-3, "MACs")),
    ],
)
def test_bound_is_longest_of_three(macs, moved, kernels, expected):
    found = estimate.bound_s(macs, moved, kernels, HARDWARE["h200"], "bfloat16")
    assert found == (pytest.approx(expected[0]), expected[1])


@pytest.mark.parametrize(
    "device, name",
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA H100 NVL", None),
        ("NVIDIA A100-SXM4-40GB", None),
        ("NVIDIA A100-PCIE-80GB", None),
        ("NVIDIA GH200 480GB", None),
        ("AMD EPYC, 2 cores", None),
        ("", None),
    ],
)
def test_data_sheet_matches_whole_device_name(device, name):
    assert by_device(device) is HARDWARE.get(name)


def test_rates_by_dtype():
    assert _rates(8, 4, 2) == {"bfloat16": 4e12, "float16": 4e12, "float32": 2e12, "float64": 1e12}
    assert {hardware.macs_per_s.keys() == ELEMENT_BYTES.keys() for hardware in HARDWARE.values()} == {True}


def printed(capsys, *argv):
    assert main(["--estimate", "--format", "csv", *argv]) == 0
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


def test_dense_all_counts_every_expert(capsys):
    rows = printed(capsys, "--layer", "moa-8K32E128D", "--seq-len", "128", "--pass", "forward")
    found = {r["implementation"]: int(r["macs"]) for r in rows if r["layer"] == "moa-8K32E128D"}
    tokens, of_head = 16384, 2 * 512 * 128 + 2 * 128 * 128
    rest = 512 * 32 + 2 * 512 * 128
    assert found["dense-all"] == tokens * (rest + 32 * of_head)
    assert found["grouped"] == found["triton"] == found["loop"] == tokens * (rest + 8 * of_head)


def test_estimate_of_record_uses_executed_work():
    measured = {"environment": {"device": "NVIDIA H200"}, "dtype": "bfloat16", "macs": 494_750_000, "least_bytes": 5}
    assert estimate.of_record(measured) == pytest.approx(1e-3)
    assert estimate.of_record(measured | {"executed_macs": 4 * 494_750_000, "executed_bytes": 7}) == pytest.approx(4e-3)
    assert estimate.of_record(measured | {"executed_macs": 494_750_000, "executed_bytes": 48_000_000}) == pytest.approx(
        1e-2
    )


def test_launches_exclude_views():
    case = TimingCase("layer", "mha-base", 10, 2, "bfloat16", "forward", "cuda", "balanced")
    # three products, the core, and the output's product
    spec = ImplSpec("mha-base", layer("mha-base"), "fused", "subject")
    assert launches(case, spec) == 5
    # a step writes its key and its value behind the stored ones
    assert launches(replace(case, which="decode"), spec) == 5 + 2
    assert launches(replace(case, which="both"), spec) is None


def test_synchronizing_impl_has_no_launch_count():
    case = TimingCase("layer", "moa-8K8E128D", 10, 2, "bfloat16", "forward", "cuda", "balanced")
    config = layer("moa-8K8E128D")
    assert launches(case, ImplSpec("moa", config, "loop", "subject")) is None
    assert launches(case, ImplSpec("moa", config, "dense-all", "subject")) < 16
