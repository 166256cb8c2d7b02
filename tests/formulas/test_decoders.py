"""Parameters and MACs of dense decoders and of DeepSeek's mixtures, in numbers worked out by hand."""

from fractions import Fraction
from functools import partial

import pytest

from headcount.bench.case import Case
from headcount.formulas import decoder, deepseek, llama, mha, mla
from headcount.formulas.conventions import CONVENTIONS
from headcount.models.configs.make import make_config
from headcount.models.configs.presets import PRESETS, preset

B, T, L, d, F, V, P, h, d_h = 2, 7, 3, 13, 17, 29, 11, 5, 3
PLAIN = {"bias": False, "gated": False, "tied": True, "parallel": False, "positions": "rotary"}
PROJECTIONS, BOTH_MATRICES = 4 * d * h * d_h, 2 * d * F


def dense(g=h, **form):
    """Return the ledger of L layers with the options of ``form``, the others as in PLAIN."""
    options = {**PLAIN, **form}
    mixer = partial(mha.layer, h=h, d_h=d_h, g=g, d_m=d, bias=options["bias"])
    return decoder.model([mixer] * L, B=B, T=T, d_m=d, F=F, V=V, P=P, h=h, d_h=d_h, **options)


@pytest.mark.parametrize(
    "form, params",
    [
        ({}, L * (PROJECTIONS + BOTH_MATRICES + 2 * d) + d + V * d),
        ({"tied": False}, L * (PROJECTIONS + BOTH_MATRICES + 2 * d) + d + 2 * V * d),
        ({"parallel": True}, L * (PROJECTIONS + BOTH_MATRICES + d) + d + V * d),
        ({"gated": True}, L * (PROJECTIONS + 3 * d * F + 2 * d) + d + V * d),
        ({"g": 1}, L * (2 * d * h * d_h + 2 * d * d_h + BOTH_MATRICES + 2 * d) + d + V * d),
        ({"positions": "learned"}, L * (PROJECTIONS + BOTH_MATRICES + 2 * d) + d + (V + P) * d),
        ({"positions": "relative"}, L * (PROJECTIONS + d * h * d_h + BOTH_MATRICES + 2 * d) + d + V * d),
        ({"bias": True}, L * (PROJECTIONS + 3 * h * d_h + d + BOTH_MATRICES + F + d + 4 * d) + 2 * d + V * d),
    ],
)
def test_decoder_params(form, params):
    assert dense(**form).params == params


@pytest.mark.parametrize(
    "form, more",
    [
        ({}, 0),
        ({"parallel": True, "tied": False, "bias": True, "positions": "learned"}, 0),
        ({"gated": True}, B * T * L * d * F),
        ({"g": 1}, -B * T * L * 2 * d * (h - 1) * d_h),
        ({"positions": "relative"}, T * L * d * h * d_h),
    ],
)
def test_decoder_macs(form, more):
    plain = B * T * (L * (PROJECTIONS + 2 * h * d_h * T + BOTH_MATRICES) + d * V)
    assert dense(**form).macs == plain + more


def test_deepseek_counts_shared_and_selected_experts():
    E, K, F_e, E_s, dense_layers, d_r, d_v, d_c, d_q = 7, 2, 5, 3, 1, 2, 5, 19, 23
    mixer = partial(mla.layer, h=h, d_h=d_h, d_m=d, d_c=d_c, d_q=d_q, d_r=d_r, d_v=d_v)
    form = deepseek.model(
        [mixer] * L, B=B, T=T, d_m=d, F=F, V=V, E_ff=E, K_ff=K, N_dense=dense_layers, F_e=F_e, E_s=E_s
    )
    attention = d * d_q + d_q * h * (d_h + d_r) + d * (d_c + d_r) + d_c * h * (d_h + d_v) + h * d_v * d
    products = h * (d_h + d_r + d_v) * T
    mixtures, router = L - dense_layers, d * E
    used = L * attention + dense_layers * 3 * d * F + mixtures * (3 * (E_s + K) * d * F_e + router) + d * V
    norms = L * (2 * d + d_q + d_c) + d
    assert form.macs == B * T * (used + L * products)
    assert form.active_params == used + V * d + norms
    assert form.params == form.active_params + mixtures * 3 * (E - K) * d * F_e


@pytest.mark.parametrize(
    "name, products",
    [("deepseek-v2", 20_850_769_920), ("deepseek-v3", 36_624_596_992)],
)
def test_deepseek_preset_weights_of_products(name, products):
    form = Case.of(name).ledger
    weights = sum(e.active_params for e in form if e.kind in ("linear", "expert_linear"))
    assert weights == products


@pytest.mark.parametrize(
    "name, params",
    [
        # 12 L d^2 + 13 L d + 2 d + (V + T) d
        ("gpt3-175b", 12 * 96 * 12288**2 + (13 * 96 + 2 + 50257 + 2048) * 12288),
        ("megatron-1t", 12 * 128 * 25600**2 + (13 * 128 + 2 + 51200 + 2048) * 25600),
        # multi-query attention, SwiGLU, one norm a layer
        ("palm-540b", 118 * 18432 * (2 * 48 * 256 + 2 * 256 + 3 * 73728 + 1) + (256000 + 1) * 18432),
        ("llama3-405b", 126 * 16384 * (2 * 16384 + 2 * 1024 + 3 * 53248 + 2) + (2 * 128256 + 1) * 16384),
    ],
)
def test_preset_params(name, params):
    assert Case.of(name).ledger.params == params


def test_relative_positions_are_closed_form_only():
    assert [name for name in PRESETS if preset(name).module is None] == ["chinchilla-70b"]


def test_unknown_positions_raise():
    with pytest.raises(ValueError, match="^positions must be one of learned, rotary, relative, not 'sideways'$"):
        make_config({**PRESETS["gpt3-175b"], "positions": "sideways"})


def test_experts_in_attention_raise():
    fields = {name: value for name, value in PRESETS["gpt3-175b"].items() if name != "num_heads"}
    with pytest.raises(ValueError, match=r"^attention must be one of mha, not 'moa'; did you mean mha\?$"):
        make_config({**fields, "attention": "moa", "num_experts": 8, "top_k": 2, "head_dim": 128})


def test_more_dense_layers_than_layers_raise():
    with pytest.raises(ValueError, match="^num_dense_layers must be .*not 5$"):
        make_config({**PRESETS["deepseek-v3"], "num_layers": 3, "num_dense_layers": 5})


def test_dense_decoder_equals_llama():
    mixer = partial(mha.layer, h=h, d_h=d_h, g=1, d_m=d, bias=False)
    of_llama = llama.model([mixer] * L, B=B, T=T, d_m=d, F=F, V=V)
    form = dense(g=1, gated=True, tied=False)
    assert (form.macs, form.params) == (of_llama.macs, of_llama.params)


def test_rules_print_the_papers_equations():
    width, heads = h * d_h, {"h": h, "d_h": d_h, "g": h}
    mixer = partial(mha.layer, d_m=width, bias=True, **heads)
    sizes = {"B": B, "T": T, "d_m": width, "F": 4 * width, "V": V, "P": P, "h": h, "d_h": d_h}
    form = decoder.model([mixer] * L, **sizes, **{**PLAIN, "bias": True, "positions": "learned"})
    layers = B * T * L * width**2
    matrices = 2 * width * L * (2 * width + 4 * width)
    square, logits = Fraction(T, 6 * width), Fraction(V, L * width)
    norms_and_biases = L * 13 * width + 2 * width
    equations = {
        # arXiv 2001.08361, Table 1: C = 2 N + 2 L T d_attn, and twice that backward
        "kaplan": 3 * B * T * (2 * matrices + 2 * L * T * width),
        # arXiv 2104.04473, Eq. 3
        "megatron2021": 96 * layers * (1 + square + logits / 16),
        # arXiv 2205.05198, Eq. 7 and 8
        "megatron_model": 72 * layers * (1 + square + logits / 12),
        "megatron_hardware": 72 * layers * (1 + 2 * square + logits / 12),
        # arXiv 2204.02311, Appendix B: 6 N + 12 L H Q T
        "palm": B * T * (6 * (matrices + norms_and_biases + (V + P) * width) + 12 * L * width * T),
    }
    assert {name: CONVENTIONS[name].flops(form, B * T) for name in equations} == equations
