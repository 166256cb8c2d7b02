"""Work and roofline bound of a pass, from the closed form of its layer."""

import pytest

from headcount.bench.latency.estimate import Peaks, bound_s, least_elements, work
from headcount.bench.latency.implementations import ImplSpec
from headcount.bench.latency.timing_cases import TimingCase
from headcount.formulas import moa
from headcount.models.configs.make import make_config

SHAPE = dict(dtype="float32", device="cpu", routing="balanced")


def test_bound_uses_fastest_memory_rate():
    assert bound_s(5, 12, Peaks(2, 3, "", read_bytes_per_s=4)) == 3.0
    assert bound_s(5, 12, Peaks(2, 6, "", read_bytes_per_s=4)) == 2.5
    assert bound_s(0, 12, Peaks(2, 6, "", read_bytes_per_s=4)) == 2.0


def test_least_elements():
    many = moa.layer("", B=2, T=100, S=100, d_m=13, E=11, K=3, D=5)
    weights = 13 * 11 + 2 * 11 * 13 * 5 + 2 * 13 * 5
    assert least_elements(many, 70, trains=False) == weights + 70
    # writes the gradients of x and of the weights, reads that of y
    assert least_elements(many, 70, trains=True) == 2 * weights + 2 * 70
    one = moa.layer("", B=1, T=1, S=1, d_m=13, E=11, K=3, D=5)
    assert least_elements(one, 0, trains=False) == 13 * 11 + 2 * 3 * 13 * 5 + 2 * 13 * 5


def test_decode_step_work():
    """MQA of 8 x 128 and MHA of 8 x 64 on one token after 2047, in 8 sequences."""
    case = TimingCase("layer", "moa-8K8E128D", 2048, 8, which="decode", **SHAPE)
    found = {spec.role: work(case, spec.needed) for spec in case.impls()}
    B, S, d = 8, 2048, 512
    assert found["mqa"].macs == B * (2 * d * 8 * 128 + 2 * d * 128 + 2 * S * 8 * 128) == 42_991_616
    assert found["mha"].macs == B * (4 * d * d + 2 * S * d) == 25_165_824
    # weights, S + 1 keys and values, and the token's input and output
    cache = 2 * B * (S + 1) * 128
    assert found["mqa"].bytes == 4 * (2 * d * 8 * 128 + 2 * d * 128 + cache + 2 * B * d)
    assert found["subject"].macs == found["mqa"].macs + B * d * 8


def test_bytes_of_a_pass():
    """Weights of MQA of 8 x 128, and inputs and outputs; in training their gradients too."""
    for which, times in (("forward", 1), ("both", 2)):
        case = TimingCase("layer", "moa-8K8E128D", 7, 3, which=which, **SHAPE)
        (mqa,) = (spec for spec in case.impls() if spec.role == "mqa")
        assert work(case, mqa.needed).bytes == times * 4 * (2 * 512 * 8 * 128 + 2 * 512 * 128 + 2 * 3 * 7 * 512)


def test_packed_heads_work():
    case = TimingCase("layer", "moh-32x64-50", 16, 2, which="forward", **SHAPE)
    dense, packed = (next(work(case, s.needed) for s in case.impls() if s.impl == impl) for impl in ("fused", "ragged"))
    # 16 of 32 heads save half of the queries, outputs and core
    assert dense.macs - packed.macs == 2 * 16 * 16 * (2 * 2048 * 64 + 2 * 16 * 64)
    assert packed.bytes == dense.bytes


@pytest.mark.parametrize("top_k", [3, 7])
@pytest.mark.parametrize("which", ["forward", "both", "decode"])
def test_dense_all_executes_every_expert(which, top_k):
    d, E, D, T, B = 11, 7, 5, 13, 2
    config = make_config(dict(attention="moa", d_model=d, num_experts=E, top_k=top_k, head_dim=D, bias=False))
    case = TimingCase("layer", "moa", T, B, which=which, **SHAPE)
    rows, passes = (B, 1) if which == "decode" else (B * T, 3 if which == "both" else 1)

    def macs(heads):
        return passes * rows * (d * E + 2 * d * D + heads * (2 * d * D + 2 * T * D))

    for impl, heads in (("dense-all", E), ("grouped", top_k), ("loop", top_k)):
        spec = ImplSpec("moa", config, impl, "subject")
        assert work(case, spec.needed).macs == macs(top_k)
        assert work(case, spec.executed).macs == macs(heads)
