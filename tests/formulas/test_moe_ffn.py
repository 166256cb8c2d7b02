"""Mixture feed-forward blocks in closed form: every operation, and the models that take them."""

import pytest

from headcount.formulas import dit, encoder_decoder, llama, masked_lm, mha

SIZES = {"B": 2, "T": 7, "S": 17, "d_m": 15}
EXPERTS = dict(F=19, E_ff=11, K_ff=3)


def attention(path, **sizes):
    return mha.layer(path, **sizes, d_m=15, h=6, d_h=5, g=2, bias=False)


MODELS = {
    "encoder_decoder": (encoder_decoder, attention, dict(**SIZES, V=29, N_enc=3, N_dec=5), 3 * 2 * 17 + 5 * 2 * 7, 2),
    "masked_lm": (masked_lm, attention, dict(B=2, T=7, d_m=15, V=29, N=3, P=11), 3 * 2 * 7, 2),
    "llama": (llama, [attention] * 3, dict(B=2, T=7, d_m=15, V=29), 3 * 2 * 7, 3),
    "dit": (dit, [attention] * 3, dict(B=2, T=7, d_m=15, p=3, C_in=4, C_out=8, d_t=22, N_y=31), 3 * 2 * 7, 2),
}


@pytest.mark.parametrize("name", MODELS)
def test_model_uses_block_in_every_layer(name):
    """``rows`` tokens run through feed-forward blocks of ``matrices`` each; nothing else of the model changes."""
    module, mixers, sizes, rows, matrices = MODELS[name]
    routed = module.model(mixers, **sizes, **EXPERTS)
    dense = module.model(mixers, **sizes, F=19)
    assert routed.macs - dense.macs == rows * (15 * 11 + (3 - 1) * matrices * 15 * 19)

    def others(form):
        return [entry for entry in form if ".feed_forward" not in entry.path or "feed_forward_norm" in entry.path]

    assert others(routed) == others(dense)
    paths = {entry.path.partition(".feed_forward")[0] for entry in routed if entry.path.endswith("router.proj")}
    assert len(paths) == (2 if name == "encoder_decoder" else 1)


def test_step_uses_block():
    sizes = {letter: size for letter, size in SIZES.items() if letter != "T"} | dict(V=29, N_dec=5, new=7, stored=7)
    routed, dense = (encoder_decoder.step(attention, **sizes, **inner) for inner in (EXPERTS, dict(F=19)))
    assert routed.macs - dense.macs == 5 * 2 * 7 * (15 * 11 + (3 - 1) * 2 * 15 * 19)
    whole, step = (
        form([attention], B=2, d_m=15, V=29, **EXPERTS, **lengths)
        for form, lengths in ((llama.model, dict(T=7)), (llama.step, dict(new=7, stored=7)))
    )
    assert step.macs == whole.macs
