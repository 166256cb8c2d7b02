"""Each letter of each entry stands for its own size: every form at sizes that are all different.

A ledger's sums cannot tell letters apart that happen to be as large, nor a letter of the legend from another one.
"""

from functools import partial

import pytest

from headcount.formulas import (
    aggregated,
    backward,
    convolution,
    decoder,
    deepseek,
    dit,
    encoder_decoder,
    jetmoe,
    llama,
    mae,
    masked_lm,
    mha,
    mla,
    mla_ideal,
    moa,
    moh,
    moh_aggregated,
    moh_ideal,
    switchhead,
)
from headcount.formulas.symbols import by_letter

LAYER = dict(B=59, T=7, S=17)
STEP = LAYER | dict(n=4)
HEADS = dict(d_m=15, h=11, d_h=5)
ROUTED = HEADS | dict(s=4, r=6, g=3)
LATENTS = HEADS | dict(d_r=23, d_v=19, d_c=29, d_q=31)
EXPERTS = dict(d_m=15, E=37, K=8, D=5)
IMAGE = HEADS | dict(B=59, T=49, N_pos=121, d_pos=43)
INNER = dict(F=41, E_ff=37, K_ff=8)

STORED = {"S": {17, 17 - 4}}
"""Stored tokens, and the new ones among them."""
OF_IMAGE = {"N_kv": {49 + 13}, "w": {9}, "d_out": {15}}
K_E = {"k": {4 + 6}, "E": {11 - 4}}

LAYERS = {
    "mha": (mha.layer, STEP | HEADS | dict(g=3, rotary=True), STORED),
    # a step adds no noise
    "moa": (
        moa.layer,
        STEP | EXPERTS | dict(g=3, bias=True, rotary=True, gates="selected", noisy=True),
        STORED | {"T": {7, 0}},
    ),
    "moh": (moh.layer, STEP | ROUTED | dict(bias=True, rotary=True), STORED | K_E),
    "moh-norm": (moh.layer, STEP | ROUTED | dict(bias=True, router="query_norm"), STORED | K_E),
    "moh-ideal": (moh_ideal.layer, STEP | ROUTED | dict(bias=True, rotary=True), STORED | K_E),
    "moh-ideal-norm": (moh_ideal.layer, STEP | ROUTED | dict(bias=True, router="query_norm"), STORED | K_E),
    "mae": (mae.layer, STEP | HEADS | dict(G=13), STORED | {"g": {11}}),
    "mae-running": (mae.layer, STEP | HEADS | dict(G=13, gate="running"), STORED | {"g": {11}}),
    "mae-whole": (mae.layer, LAYER | HEADS | dict(G=13), {"g": {11}}),
    "mla": (mla.layer, STEP | LATENTS | dict(bias=True, rotary=True), STORED | {"d_qk": {5 + 23}}),
    "mla-ideal": (mla_ideal.layer, STEP | LATENTS | dict(bias=True, rotary=True), STORED | {"d_qk": {29 + 23}}),
    "switchhead": (switchhead.layer, STEP | HEADS | dict(E=37, K=8, rotary=True), STORED),
    "aggregated": (aggregated.layer, IMAGE | dict(M=13), OF_IMAGE),
    "aggregated-some": (aggregated.layer, IMAGE | dict(M=13, k=10, s=4), OF_IMAGE),
    "aggregated-all": (aggregated.layer, IMAGE | dict(M=0), {"S": {49}, "N_kv": {49}}),
    "moh-aggregated": (moh_aggregated.layer, IMAGE | dict(M=13, s=4, r=6), OF_IMAGE | K_E),
    "moh-aggregated-ideal": (moh_aggregated.layer, IMAGE | dict(M=13, s=4, r=6, form="ideal"), OF_IMAGE | K_E),
}


def check_letters(form, sizes, others):
    """``others``: letters that the form was not given, or that have several sizes."""
    expected = {letter: {size} for letter, size in sizes.items()} | {"2": {2}, "6": {6}} | others
    assert len(form) > 0
    for entry in (*form, *backward.backward(form)):
        for letter, size in (*entry.dims.items(), *entry.weight.items()):
            assert by_letter(letter) and size in expected[letter], (entry.path, entry.kind, letter)


@pytest.mark.parametrize("name", LAYERS)
def test_letters_of_a_layer(name):
    form, sizes, others = LAYERS[name]
    check_letters(form("a", **sizes), sizes, others)


def test_letters_of_causal_half():
    sizes = dict(B=59, T=7, S=17, g=3) | HEADS
    check_letters(mha.causal_half(mha.layer("a", **sizes)), sizes, {"N_qk": {7 * (2 * 17 - 7 + 1) // 2}})


ATTENTION = partial(mha.layer, h=11, d_h=5, g=3, d_m=15)
TRANSLATION = dict(B=59, S=17, d_m=15, V=47) | INNER
MIXED = {"E": {37}, "K": {8}, "h": {11}, "d_h": {5}, "g": {3}}
ENCODED = MIXED | {"T": {7, 17}}
SELF = MIXED | {"S": {7}}
DYNAMIC = dict(h_w=3, w=9)
OF_CONVOLUTION = {"h_w": {3}, "w": {5, 9}, "d_out": {15}}

MODELS = {
    "encoder-decoder": (
        partial(encoder_decoder.model, ATTENTION, T=7, N_enc=2, N_dec=2, **TRANSLATION),
        TRANSLATION,
        ENCODED | {"S": {7, 17}},
    ),
    "encoder-decoder-step": (
        partial(encoder_decoder.step, ATTENTION, new=7, stored=19, N_dec=2, **TRANSLATION),
        TRANSLATION | dict(T=7),
        MIXED | {"S": {7, 17, 19, 0}},
    ),
    "convolution": (
        partial(
            convolution.model,
            ATTENTION,
            **dict(T=7, h_w=3, encoder_kernels=(5, 9), decoder_kernels=(9,), dynamic=True),
            **TRANSLATION,
        ),
        TRANSLATION,
        ENCODED | OF_CONVOLUTION,
    ),
    "convolution-step": (
        partial(
            convolution.step,
            ATTENTION,
            **dict(new=7, stored=19, h_w=3, decoder_kernels=(9, 5), dynamic=False),
            **TRANSLATION,
        ),
        TRANSLATION | dict(T=7),
        MIXED | OF_CONVOLUTION | {"S": {17, 0}, "N_w": {4, 7, 8}},
    ),
    "masked": (
        partial(masked_lm.model, ATTENTION, N=2, **dict(B=59, T=7, d_m=15, V=47, P=19), **INNER),
        dict(B=59, T=7, d_m=15, V=47, P=19, F=41),
        SELF | {"d_out": {15}},
    ),
    "llama": (
        partial(llama.model, [ATTENTION] * 2, **dict(B=59, T=7, d_m=15, V=47), **INNER),
        dict(B=59, T=7, d_m=15, V=47, F=41),
        SELF,
    ),
    "jetmoe": (
        partial(jetmoe.step, [ATTENTION] * 2, new=7, stored=19, **dict(B=59, d_m=15, V=47), **INNER),
        dict(B=59, T=7, d_m=15, V=47, F=41),
        MIXED | {"S": {7, 19}},
    ),
    "deepseek": (
        partial(
            deepseek.step,
            [ATTENTION] * 3,
            **dict(new=7, stored=19, N_dense=1, F_e=13, E_s=2, B=59, d_m=15, V=47),
            **INNER,
        ),
        dict(B=59, T=7, d_m=15, V=47),
        MIXED | {"S": {7, 19}, "F": {41, 13, 2 * 13}},
    ),
    "decoder": (
        partial(
            decoder.model,
            [ATTENTION] * 2,
            **dict(B=59, T=7, d_m=15, F=41, V=47, P=53, h=11, d_h=5),
            **dict(bias=True, gated=False, tied=True, parallel=False, positions="learned"),
        ),
        dict(B=59, T=7, d_m=15, F=41, V=47, P=53),
        SELF,
    ),
    "dit": (
        partial(dit.model, [ATTENTION] * 2, **dict(B=59, T=7, d_m=15, C_in=4, C_out=12, d_t=22, N_y=61), p=10, **INNER),
        dict(B=59, T=7, d_m=15, C_in=4, C_out=12, d_t=22, N_y=61, p_h=10, p_w=10, F=41),
        SELF | {"d_out": {15}},
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_letters_of_a_model(name):
    model, sizes, others = MODELS[name]
    check_letters(model(), sizes, others)
