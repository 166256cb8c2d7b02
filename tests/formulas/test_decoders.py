"""Parameters and MACs of dense decoders and of DeepSeek's mixtures, in numbers worked out by hand."""

from fractions import Fraction
from functools import partial

import pytest

from headcount.bench.case import Case
from headcount.formulas import decoder, mha
from headcount.formulas.conventions import CONVENTIONS
from headcount.models.configs.make import make_config
from headcount.models.configs.presets import PRESETS, preset

B, T, L, d, F, V, P, h, d_h = 2, 7, 3, 13, 17, 29, 11, 5, 3
PLAIN = {"bias": False, "gated": False, "tied": True, "parallel": False, "positions": "rotary"}
MATRICES = 4 * d * h * d_h + 2 * d * F


def test_relative_positions():
    mixer = partial(mha.layer, h=h, d_h=d_h, g=h, d_m=d, bias=False)
    sizes = {"B": B, "T": T, "d_m": d, "F": F, "V": V, "P": P, "h": h, "d_h": d_h}
    form = decoder.model([mixer] * L, **sizes, **{**PLAIN, "positions": "relative"})
    # a projection of T positions in each layer
    assert form.macs == B * T * (L * (MATRICES + 2 * h * d_h * T) + d * V) + T * L * d * h * d_h
    assert form.params == L * (MATRICES + d * h * d_h + 2 * d) + d + V * d


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
