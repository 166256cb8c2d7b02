"""Closed forms of translation models against hand formulas and against figures of the authors' code."""

import pytest

from headcount.bench.case import Case
from headcount.formulas import conventions, encoder_decoder, masked_lm, mha, moa


def moa_attention(path, *, B, T, S):
    return moa.layer(path, B=B, T=T, S=S, d_m=13, E=11, K=3, D=5)


def moa_macs(b, t, s):
    return b * t * 13 * 11 + 2 * b * 3 * t * 13 * 5 + 2 * b * s * 13 * 5 + 2 * b * 3 * t * s * 5


MOA_PARAMS = 13 * 11 + 2 * 11 * 13 * 5 + 2 * 13 * 5


def test_encoder_decoder():
    b, s, t, f, v = 2, 7, 5, 17, 29
    form = encoder_decoder.model(moa_attention, B=b, S=s, T=t, d_m=13, F=f, V=v, N_enc=3, N_dec=2)
    encoder = moa_macs(b, s, s) + 2 * b * s * 13 * f
    decoder = moa_macs(b, t, t) + moa_macs(b, t, s) + 2 * b * t * 13 * f
    assert form.macs == 3 * encoder + 2 * decoder + b * t * 13 * v
    ff_params = 2 * 13 * f + f + 13
    assert form.params == (
        v * 13 + 3 * (MOA_PARAMS + ff_params + 2 * 2 * 13) + 2 * (2 * MOA_PARAMS + ff_params + 3 * 2 * 13)
    )
    sizes = form.group(lambda e: e.kind, "size")
    gates = 3 * b * s * 3 * 5 + 2 * 2 * b * t * 3 * 5
    assert sizes["elementwise"] == gates + sizes["norm"] + 2 * b * (s + t) * 13


def test_masked_language_model():
    b, t, f, v, p = 2, 7, 17, 29, 11

    def attention(path, *, B, T, S):
        return mha.layer(path, B=B, T=T, S=S, d_m=15, h=3, d_h=5, g=3)

    form = masked_lm.model(attention, B=b, T=t, d_m=15, F=f, V=v, N=3, P=p)
    layer = 4 * b * t * 15 * 15 + 2 * b * t * t * 15 + 2 * b * t * 15 * f
    assert form.macs == 3 * layer + b * t * 15 * 15 + b * t * 15 * v
    layer_params = 4 * (15 * 15 + 15) + 2 * 15 * f + f + 15 + 2 * 2 * 15
    assert form.params == v * 15 + p * 15 + 2 * 15 + 3 * layer_params + 15 * 15 + 15 + 2 * 15 + v
    sizes = form.group(lambda e: e.kind, "size")
    assert sizes["bias"] == 3 * b * t * (4 * 15 + f + 15) + b * t * 15 + b * t * v
    assert sizes["elementwise"] == b * t * 15 + 3 * 2 * b * t * 15


def test_mae_7_in_both_causal_gates():
    """MAE-7: 12 of them, each with 133,120 MACs for every token and not for the sequence."""
    memory, running = (Case.of("mae-7", {"causal_gate": gate}).ledger for gate in ("memory", "running"))
    assert memory.macs == 608_481_280 and memory.total_under(conventions.projections) == 606_638_080
    assert running.macs - memory.macs == 12 * 133_120 * 9 == 14_376_960
    assert memory.params == running.params == 62_923_408


def test_parameters_of_released_translation_model():
    assert Case.of("moa-8K8E128D").ledger.params == 62_918_656


@pytest.mark.parametrize(
    "name, macs",  # of every linear layer, from the widths of Tables 5 and 6
    [
        ("transformer-base", 604_241_920),
        ("transformer-big", 2_089_287_680),
        ("admin-18L-18L", 1_485_045_760),
        ("admin-60L-12L", 2_554_593_280),
    ],
)
def test_linear_layers_of_baselines(name, macs):
    assert Case.of(name).ledger.total_under(lambda e: e.kind == "linear") == macs
