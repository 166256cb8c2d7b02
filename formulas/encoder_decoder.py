"""Encoder-decoder Transformer with any attention, and its translation embedding and output (section 5)."""

from functools import partial

from headcount.formulas.ledger import Entry, Ledger, Size, ledger
from headcount.formulas.transformer import Mixer, encoder_and_decoder, layer, tied_output, translation_embedding

CAUSAL_PATHS = r"decoder\.layers\..+\.self_attn"
"""Module paths of causal attention; encoder and cross-attention see whole sequences."""


def model(
    attention: Mixer | tuple[Mixer, Mixer],
    *,
    B: Size,
    S: Size,
    T: Size,
    d_m: Size,
    V: Size,
    N_enc: Size,
    N_dec: Size,
    **inner: Size,
) -> Ledger:
    """Return the ledger of ``N_enc`` encoder layers over S tokens and ``N_dec`` decoder layers over T tokens.

    ``attention``: that of all layers, or a pair for encoder and decoder. ``inner``: sizes of
    :func:`headcount.formulas.transformer.feed_forward`.
    With T = 0 it is the prefill: the encoder, and keys and values of its output.
    """
    of_encoder, of_decoder = encoder_and_decoder(attention)
    source, target = {"B": B, "T": S, "d_m": d_m}, {"B": B, "T": T, "d_m": d_m}
    encoder = {"self_attn": partial(of_encoder, B=B, T=S, S=S)}
    decoder = {"self_attn": partial(of_decoder, B=B, T=T, S=T), "cross_attn": partial(of_decoder, B=B, T=T, S=S)}
    return ledger(
        translation_embedding(B=B, S=S, T=T, d_m=d_m, V=V),
        layer("encoder.layers.*", encoder, **source, **inner).repeat(N_enc),
        layer("decoder.layers.*", decoder, **target, **inner).repeat(N_dec),
        tied_output(V=V, **target),
    )


def step(
    attention: Mixer | tuple[Mixer, Mixer],
    *,
    new: Size,
    stored: Size,
    B: Size,
    S: Size,
    d_m: Size,
    F: Size,
    V: Size,
    N_dec: Size,
    E_ff: Size = 0,
    K_ff: Size = 0,
    **_,
) -> Ledger:
    """Return the ledger of a decode step: ``new`` target tokens, ``stored`` after the step, S cached source tokens."""
    _, of_decoder = encoder_and_decoder(attention)
    rows, inner = {"B": B, "T": new, "d_m": d_m}, {"F": F, "E_ff": E_ff, "K_ff": K_ff}
    decoder = {
        "self_attn": partial(of_decoder, B=B, T=new, S=stored, n=stored - new),
        "cross_attn": partial(of_decoder, B=B, T=new, S=S, n=S),
    }
    return ledger(
        Entry("embedding", "embedding", rows),
        Entry("", "elementwise", {"2": 2, **rows}),
        layer("decoder.layers.*", decoder, **rows, **inner).repeat(N_dec),
        tied_output(V=V, **rows),
    )
