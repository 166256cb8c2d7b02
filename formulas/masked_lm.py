"""Closed forms of a masked language model (MoA paper, section 5): post-norm encoder, learned positions, tied output."""

from functools import partial

from headcount.formulas.blocks import layer_norm, linear
from headcount.formulas.ledger import Entry, Ledger, Size, ledger
from headcount.formulas.transformer import Mixer, layer

NO_DECODE_STEP = "a masked language model reads its tokens at once and decodes none"


def model(
    attention: Mixer,
    *,
    B: Size,
    T: Size,
    d_m: Size,
    V: Size,
    N: Size,
    P: Size,
    **inner: Size,
) -> Ledger:
    """Return the ledger of ``N`` encoder layers over T tokens, P learned positions, logits for every token.

    ``inner``: sizes of :func:`headcount.formulas.moe_ffn.feed_forward`.
    """
    rows, width, mixer = {"B": B, "T": T}, {"d_m": d_m}, partial(attention, B=B, T=T, S=T)
    return ledger(
        Entry("embedding", "embedding", {**rows, **width}, weight={"V": V, **width}),
        Entry("position_embedding", "embedding", {"T": T, **width}, weight={"P": P, **width}),
        Entry("", "elementwise", {**rows, **width}),
        layer_norm("embedding_norm", B=B, T=T, d_m=d_m),
        layer("encoder.layers.*", {"self_attn": mixer}, B=B, T=T, d_m=d_m, **inner).repeat(N),
        linear("lm_head.dense", rows, width, {"d_out": d_m}, bias=True),
        Entry("lm_head", "activation", {**rows, **width}),
        layer_norm("lm_head.norm", B=B, T=T, d_m=d_m),
        Entry("lm_head.output_proj", "linear", {**rows, **width, "V": V}, summed=("d_m",)),
        Entry("lm_head.output_proj", "bias", {**rows, "V": V}, weight={"V": V}),
    )
