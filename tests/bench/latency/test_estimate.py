"""Estimates of times from a data sheet, and counts of kernels."""

import json

import pytest

from headcount.bench.hardware import HARDWARE, by_device
from headcount.bench.latency import estimate
from headcount.bench.latency.__main__ import main
from headcount.bench.latency.timing_cases import TimingCase
from tests.bench.latency.conftest import latency_record


def rows(*names, which="forward", seq_len=2048, batch_size=8, requested=None, card="h200", subject="layer"):
    cases = [
        TimingCase(subject, name, seq_len, batch_size, "bfloat16", which, "cuda", "balanced", requested)
        for name in names
    ]
    return estimate.table(cases, HARDWARE[card]).rows


def test_least_time_sums_over_kernels():
    (row,) = rows("mha-base", requested=("fused",))
    # 16,384 tokens, and products of 512 x 512
    product = max(2 * (2 * 16384 * 512 + 512 * 512) / 4.8e6, 16384 * 512 * 512 / 494.75e6)
    core = 2 * 16384 * 2048 * 512 / 494.75e6
    assert row.launches == 5 and row.least_us == pytest.approx(4 * product + core + 5 * 1.5)
    assert row.least_us < row.expected_us < 3 * row.least_us


@pytest.mark.parametrize("which", ["forward", "both", "decode"])
def test_implementations_differ_in_time(which):
    found = {row.implementation: row for row in rows("moa-8K32E128D", which=which) if row.layer == "moa-8K32E128D"}
    times = {row.expected_us for row in found.values() if row.expected_us}
    assert len(times) == 3 and min(times) == found["triton"].expected_us
    loop = found["loop"]
    assert loop.expected_us is None and loop.launches is None
    # without kernels the least time is of the whole call's bytes and products
    assert loop.least_us == pytest.approx(max(loop.bytes / 4.8e6, loop.macs / 494.75e6))


def test_training_step_of_a_model_runs_its_backward_pass():
    forward, both = (
        rows("mlm-transformer", which=which, seq_len=32, requested=("fused",), subject="model")[0].launches
        for which in ("forward", "both")
    )
    # two products in the backward pass for one in the forward pass
    assert both > 2 * forward


def test_expected_time_is_above_least():
    for row in rows("moa-8K8E128D", "moh-32x64-50", "mha-base", which="both"):
        assert row.expected_us is None or row.expected_us > row.least_us


def test_other_card_has_its_rates_and_says_so():
    (there,), (here,) = (rows("mha-base", requested=("fused",), card=card) for card in ("a100", "h200"))
    assert there.expected_us > here.expected_us
    notes = estimate.table([], HARDWARE["a100"]).above
    assert (
        "A100 80GB SXM: the same efficiencies" in notes[1]
        and "same" not in estimate.table([], HARDWARE["h200"]).above[1]
    )


def test_sentence_names_the_fastest_implementation():
    assert estimate.sentence(rows("moa-8K32E128D")).endswith(
        "moa-8K32E128D: triton is expected to be the fastest of 3 implementations."
    )
    assert estimate.sentence(rows("mha-base")).endswith("nothing was measured.")


@pytest.mark.parametrize("device, name", [
    ("NVIDIA A100-SXM4-40GB", "a100-40gb"), ("NVIDIA H200 NVL", None), ("NVIDIA H100", None), ("", None),
])  # fmt: skip
def test_data_sheet_matches_whole_device_name(device, name):
    assert by_device(device) is HARDWARE.get(name)


@pytest.mark.parametrize("executed, ms", [({}, 1), ((4 * 494_750_000, 7), 4), ((494_750_000, 48_000_000), 10)])
def test_estimate_of_record_uses_executed_work(executed, ms):
    work = dict.fromkeys(("executed_macs", "executed_bytes")) | {"macs": 494_750_000, "least_bytes": 5}
    work |= dict(zip(("executed_macs", "executed_bytes"), executed, strict=False))
    assert estimate.bound_of_record(latency_record(**work)) == pytest.approx(ms / 1000)


@pytest.mark.parametrize(("line", "named"), [
    ("--plan tp=2", "a TARGET"), ("llama3-8b --plan tp=3", "h = 32"), ("llama3-8b --plan tp", "tp=2"),
    ("llama3-8b --plan tp=2 --implementation fused", "--implementation"),
    ("llama3-8b --plan tp=2 --pass backward", "forward, both, decode"), ("config.json", "config.json"),
    ("llama3-8b --plan tp=2 --dtype float32", "bfloat16, not in float32"),
    ("llama3-8b --plan tp=2 --dtype fp32", "bfloat16, not in float32"), ("llama3-8", "llama3-8b"),
])  # fmt: skip
def test_wrong_estimate_names_what_is_valid(line, named, capsys):
    assert main(["--estimate", *line.split(), "--on", "h100-sxm"]) == 2
    assert named in capsys.readouterr().err


def test_each_length_of_a_plan_has_a_table(capsys):
    words = ["--estimate", "llama3-8b", "--plan", "tp=8", "--seq-len", "64", "128", "--pass", "decode"]
    assert main([*words, "--on", "h100-sxm", "--format", "json"]) == 0
    tables = json.loads(capsys.readouterr().out)["tables"]
    assert [[row["what"] for row in table["rows"]] for table in tables] == [["decode step"]] * 2
    assert tables[0]["rows"][0]["expected_ms"] < tables[1]["rows"][0]["expected_ms"]


def test_target_is_estimated_as_it_is_counted(capsys):
    """Of one sequence by default, and each dense layer once, also where two baselines are the same."""
    K, E, D, d_m, T = 8, 8, 64, 512, 16
    words = ["--estimate", f"moa:K={K},E={E},D={D},d_m={d_m},T={T}", "--pass", "forward", "--on", "h100-sxm"]
    for more, batch in (((), 1), (("--batch-size", "3"), 3), (("--tokens", "64"), 4)):
        assert main([*words, *more, "--format", "json"]) == 0
        found = json.loads(capsys.readouterr().out)["tables"][0]["rows"]
        own = next(row for row in found if row["implementation"] == "grouped")
        sequence = T * d_m * E + 2 * T * K * D * d_m + 2 * T * D * d_m + 2 * K * T * T * D
        assert (own["batch_size"], own["macs"]) == (batch, batch * sequence)
        calls = [(row["layer"], row["implementation"]) for row in found]
        assert len(calls) == len(set(calls)) and ("mha-8x64", "fused") in calls


@pytest.mark.parametrize("form, is_alone", [("ideal", True), ("released", False)])
def test_layer_without_a_fast_implementation_says_so(form, is_alone, capsys):
    target = f"moh:h=4,s=1,r=1,d_h=8,d_m=32,T=8,form={form}"
    assert main(["--estimate", target, "--on", "H100 SXM"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert (f"{target}: the reference alone" in out) == is_alone and "Pass both: forward and backward." in out
