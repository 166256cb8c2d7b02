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
from headcount.bench.latency.table import Columns
from headcount.bench.latency.timing_cases import ELEMENT_BYTES, TimingCase
from headcount.bench.render import realised
from headcount.models.configs.layers import layer
from tests.bench.output.reading import columns, kept


@pytest.mark.parametrize(
    "macs, moved, kernels, expected",
    [
        (494.75e9, 1, 1, (1e-3, "MACs")),
        (1, 4.8e9, 1, (1e-3, "bytes")),
        (1, 1, 1000, (1.5e-3, "kernels")),
        (494.75e9, 4.7e9, None, (1e-3, "MACs")),
    ],
)
def test_the_bound_is_the_longest_of_three(macs, moved, kernels, expected):
    found = estimate.bound_s(macs, moved, kernels, HARDWARE["h200"], "bfloat16")
    assert found == (pytest.approx(expected[0]), expected[1])


def test_every_figure_has_a_source():
    assert all("data sheet" in hardware.source for hardware in HARDWARE.values())


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


def test_every_type_has_the_rate_of_its_width_two_operations_a_mac():
    assert _rates(8, 4, 2) == {"bfloat16": 4e12, "float16": 4e12, "float32": 2e12, "float64": 1e12}
    assert {hardware.macs_per_s.keys() == ELEMENT_BYTES.keys() for hardware in HARDWARE.values()} == {True}


def printed(capsys, *argv):
    assert main(["--estimate", "--format", "csv", *argv]) == 0
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


def test_every_arm_has_an_estimate_those_that_are_missing_here_too(capsys):
    rows = printed(capsys, "--layer", "moa-8K8E128D", "--seq-len", "128", "--pass", "forward")
    assert [r["implementation"] for r in rows] == ["dense-all", "grouped", "loop", "triton", "fused", "fused", "fused"]
    mqa = rows[4]
    macs, tokens = int(mqa["macs"]), 16384
    assert macs == tokens * (2 * 512 * 8 * 128 + 2 * 512 * 128 + 2 * 128 * 8 * 128)
    assert float(mqa["estimate_us"]) == pytest.approx(1e6 * macs / 494.75e12) and mqa["limit"] == "MACs"


def test_all_experts_at_once_are_billed_what_they_do(capsys):
    rows = printed(capsys, "--layer", "moa-8K32E128D", "--seq-len", "128", "--pass", "forward")
    found = {r["implementation"]: int(r["macs"]) for r in rows if r["layer"] == "moa-8K32E128D"}
    tokens, of_head = 16384, 2 * 512 * 128 + 2 * 128 * 128
    rest = 512 * 32 + 2 * 512 * 128
    assert found["dense-all"] == tokens * (rest + 32 * of_head)
    assert found["grouped"] == found["triton"] == found["loop"] == tokens * (rest + 8 * of_head)


def test_a_measured_row_was_to_take_what_its_arm_did():
    measured = {"environment": {"device": "NVIDIA H200"}, "dtype": "bfloat16", "macs": 494_750_000, "least_bytes": 5}
    assert estimate.of_record(measured) == pytest.approx(1e-3)
    assert estimate.of_record(measured | {"executed_macs": 4 * 494_750_000, "executed_bytes": 7}) == pytest.approx(4e-3)
    assert estimate.of_record(measured | {"executed_macs": 494_750_000, "executed_bytes": 48_000_000}) == pytest.approx(
        1e-2
    )


def test_a_row_says_what_is_to_be_expected_and_by_what():
    cases = [
        TimingCase("layer", "mha-base", 128, 3, "bfloat16", which, "cuda", "balanced") for which in ("forward", "both")
    ]
    section = realised(estimate.section(cases, HARDWARE["h200"]))
    assert section.table.name == "estimate"
    found = columns(section)
    assert {
        head: cases[:1] for head, cases in found.items() if head not in ("least bytes", "estimate at least us")
    } == {
        "layer": ["mha-base"],
        "implementation": ["fused"],
        "T": ["128"],
        "B": ["3"],
        "pass": ["forward"],
        # four products of 512 x 512, and two of 128 keys for each of 384 tokens
        "MACs": [f"{384 * (4 * 512**2 + 2 * 128 * 512):,}"],
        "kernels": ["5"],
        "by": ["kernels"],
    }
    # five kernels of 1.5 us; those of a training step are not counted
    assert found["estimate at least us"][0] == "7.5" and found["kernels"] == ["5", "–"]
    counted, unknown = (row.notes for row in section.rows)
    why = "kernels unknown: the pass is not counted, or the implementation does not run on meta tensors"
    assert counted == [] and unknown == [why]
    assert kept(section, 10) == ["layer", "implementation", "T", "estimate at least us", "by"]


def test_devices_differ(capsys):
    case = ["--layer", "mha-base", "--seq-len", "10", "--tokens", "10", "--pass", "forward", "--dtype", "float32"]
    by = {name: printed(capsys, *case, "--device", name)[0] for name in HARDWARE}
    assert {r["macs"] for r in by.values()} == {by["h200"]["macs"]}
    assert {r["limit"] for r in by.values()} == {"kernels"}


def test_it_says_that_it_is_an_estimate(capsys):
    assert main(["--estimate", "--layer", "mha-base", "--seq-len", "10", "--pass", "forward"]) == 0
    out = capsys.readouterr().out
    assert "Estimate, not measured: NVIDIA H200 SXM" in out and "No figure of this table was measured." in out
    heads = [column.head for column in Columns("cuda").columns()]
    assert "estimate,\nno measure" in heads and "estimate" not in " ".join(c.key for c in Columns("cpu").columns())


def test_kernels_are_operations_that_are_no_views():
    case = TimingCase("layer", "mha-base", 10, 2, "bfloat16", "forward", "cuda", "balanced")
    # three products, the core, and the output's product
    spec = ImplSpec("mha-base", layer("mha-base"), "fused", "subject")
    assert launches(case, spec) == 5
    # a step writes its key and its value behind the stored ones
    assert launches(replace(case, which="decode"), spec) == 5 + 2
    assert launches(replace(case, which="both"), spec) is None


def test_every_other_arm_has_a_number_and_so_has_a_model():
    layer_at = dict(seq_len=10, batch_size=2, dtype="bfloat16", device="cuda", routing="balanced")
    cases = [TimingCase("layer", "moa-8K8E128D", which=which, **layer_at) for which in ("forward", "decode")]
    cases.append(TimingCase("model", "dit-s2", 256, 2, "bfloat16", "forward", "cuda", "natural"))
    for case in cases:
        # a kernel of ours has one where its package is installed
        found = {spec.impl: launches(case, spec) for spec in case.impls(of_every_device=True) if spec.impl != "triton"}
        assert {impl for impl, number in found.items() if number is None} <= {"loop"}, case.key


def test_an_arm_that_reads_sizes_back_has_no_number_of_kernels():
    case = TimingCase("layer", "moa-8K8E128D", 10, 2, "bfloat16", "forward", "cuda", "balanced")
    config = layer("moa-8K8E128D")
    assert launches(case, ImplSpec("moa", config, "loop", "subject")) is None
    assert launches(case, ImplSpec("moa", config, "dense-all", "subject")) < 16
