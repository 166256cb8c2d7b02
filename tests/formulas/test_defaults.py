"""What an argument is that nobody gives: a form without it is the form with the default that stands here.

Each default changes the form: another value beside it gives another ledger.
"""

from functools import partial

import pytest

from headcount.formulas import (
    aggregated,
    blocks,
    convolution,
    dit,
    encoder_decoder,
    llama,
    mae,
    masked_lm,
    mha,
    mla,
    mla_ideal,
    moa,
    moe_ffn,
    moh,
    moh_aggregated,
    moh_ideal,
    switchhead,
    transformer,
    transnext,
)

LENGTHS = dict(B=2, T=7, S=17)
HEADS = LENGTHS | dict(d_m=13, h=11, d_h=5)
ROUTED = HEADS | dict(s=3, r=5, g=11)
LATENTS = HEADS | dict(d_r=3, d_v=19, d_c=23, d_q=29)
IMAGE = dict(B=2, T=49, d_m=33, h=11, d_h=3, M=5, N_pos=121, d_pos=17)
BLOCK = dict(B=2, T=7, d_m=13, F=19)
ROWS = dict(rows={"B": 2}, fan_in={"d_m": 13}, fan_out={"F": 19})

CACHED, PLAIN = dict(n=(None, 0)), dict(bias=(False, True))
TURNED = dict(rotary=(False, True))
BY_LINEAR = dict(router=("linear", "query_norm"))

LAYERS = {
    "mha": (mha.layer, HEADS | dict(g=11), CACHED | TURNED | dict(bias=(True, False))),
    "moa": (
        partial(moa.layer, **LENGTHS, d_m=13, E=11, K=3, D=6),
        {},
        CACHED | TURNED | PLAIN | dict(g=(1, 2), output_bias=(False, True), noisy=(False, True)),
    ),
    "moa-gates": (moa.layer, LENGTHS | dict(d_m=13, E=11, K=3, D=6), dict(gates=("printed", "selected"))),
    "moa-noisy": (moa.layer, LENGTHS | dict(d_m=13, E=11, K=3, D=6, noisy=True), dict(training=(False, True))),
    "moh": (moh.layer, ROUTED, CACHED | TURNED | PLAIN | BY_LINEAR),
    "moh-ideal": (moh_ideal.layer, ROUTED, CACHED | TURNED | PLAIN | BY_LINEAR),
    "mae": (mae.layer, HEADS | dict(G=7), CACHED | dict(bias=(True, False), gate=("sequence", "running"))),
    "mla": (mla.layer, LATENTS, CACHED | TURNED | PLAIN),
    "mla-ideal": (mla_ideal.layer, LATENTS, CACHED | TURNED | PLAIN),
    "switchhead": (switchhead.layer, HEADS | dict(E=5, K=2), CACHED | TURNED),
    "aggregated": (aggregated.layer, IMAGE, dict(k=(None, 6))),
    "aggregated-some": (aggregated.layer, IMAGE | dict(k=6), dict(s=(0, 4))),
    "moh-aggregated": (moh_aggregated.layer, IMAGE | dict(s=4, r=2), dict(form=("released", "ideal"))),
    "linear": (blocks.linear, ROWS, PLAIN),
    "experts": (
        blocks.expert_linear,
        dict(routed={"B": 2, "K": 3}, experts={"E": 5}, fan_in={"d_m": 13}, fan_out={"F": 19}),
        PLAIN,
    ),
    "mixture": (moe_ffn.layer, BLOCK | dict(E=5, K=3), dict(gated=(False, True), output_bias=(False, True))),
}
"""Form -> its sizes, and each argument's default beside another value."""


@pytest.mark.parametrize("name", LAYERS)
def test_a_default_is_what_stands_here(name):
    form, sizes, defaults = LAYERS[name]
    bare = form("a", **sizes)
    for argument, (default, other) in defaults.items():
        assert form("a", **sizes, **{argument: default}) == bare
        assert form("a", **sizes, **{argument: other}) != bare
    assert form("a", **sizes, **{argument: default for argument, (default, _) in defaults.items()}) == bare


@pytest.mark.parametrize("block", [transformer.feed_forward, llama.gated_feed_forward, transnext.feed_forward])
def test_a_feed_forward_block_is_dense(block):
    assert block("a", **BLOCK) == block("a", **BLOCK, E_ff=0, K_ff=0) != block("a", **BLOCK, E_ff=5, K_ff=3)
    assert not any("E" in entry.weight for entry in block("a", **BLOCK))
    # a bias after the sum over experts, where there are experts
    if block is llama.gated_feed_forward:
        experts = BLOCK | dict(E_ff=5, K_ff=3)
        assert block("a", **experts) == block("a", **experts, output_bias=False)
        assert block("a", **experts) != block("a", **experts, output_bias=True)


ATTENTION = partial(mha.layer, d_m=13, h=11, d_h=5, g=11)
WORDS = dict(B=2, d_m=13, F=19, V=29)
KERNELS = dict(h_w=13, decoder_kernels=(3, 5), dynamic=True)


def image_attention(path, *, B):
    return aggregated.layer(path, **IMAGE | dict(B=B))


MODELS = {
    "encoder-decoder": partial(encoder_decoder.model, ATTENTION, T=7, S=17, N_enc=3, N_dec=2, **WORDS),
    "encoder-decoder-step": partial(encoder_decoder.step, ATTENTION, new=1, stored=7, S=17, N_dec=2, **WORDS),
    "masked": partial(masked_lm.model, ATTENTION, T=7, N=3, P=11, **WORDS),
    "llama": partial(llama.model, [ATTENTION] * 2, T=7, **WORDS),
    "dit": partial(dit.model, [ATTENTION] * 2, **dict(B=2, T=7, d_m=13, F=19, p=3, C_in=4, C_out=8, d_t=22, N_y=31)),
    "convolution": partial(convolution.model, ATTENTION, T=7, S=17, encoder_kernels=(3, 7), **KERNELS, **WORDS),
    "convolution-step": partial(convolution.step, ATTENTION, new=1, stored=7, S=17, **KERNELS, **WORDS),
    "transnext": partial(
        transnext.model,
        [image_attention] * 3,
        **dict(B=2, C_in=3, C=11, depths=(1, 2), tokens=(49, 9), widths=(33, 35), inner_widths=(16, 29)),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_models_feed_forward_blocks_are_dense(name):
    model = MODELS[name]
    assert model() == model(E_ff=0, K_ff=0) != model(E_ff=5, K_ff=3)
    assert not any("E" in entry.weight for entry in model())


def test_a_convolution_has_no_band_and_no_cache():
    block = partial(convolution.block, "a", B=2, T=7, d_m=15, h_w=5, w=3, dynamic=True)
    assert block() == block(band=False, n=None)
    assert block() not in (block(band=True), block(n=0))
    model = MODELS["convolution"]
    assert model() == model(band=False) != model(band=True)
    plain = llama.model([ATTENTION], T=7, **WORDS)
    assert plain == llama.model([ATTENTION], T=7, n=None, **WORDS) != llama.model([ATTENTION], T=7, n=0, **WORDS)
