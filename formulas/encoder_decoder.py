"""Encoder-decoder Transformer with any attention, and its translation embedding and output (section 5)."""

from headcount.formulas.ledger import Entry, Ledger, Size, ledger
from headcount.formulas.transformer import (
    Mixer,
    decoder_layer,
    encoder_and_decoder,
    encoder_layer,
    tied_output,
    translation_embedding,
)

CAUSAL_PATHS = r"decoder\.layers\..+\.self_attn"
"""Module paths of causal attention; encoder and cross-attention see whole sequences."""


def model(
    attention: Mixer | tuple[Mixer, Mixer],
    *,
    B: Size,
    S: Size,
    T: Size,
    d_m: Size,
    F: Size,
    V: Size,
    N_enc: Size,
    N_dec: Size,
    E_ff: Size = 0,
    K_ff: Size = 0,
) -> Ledger:
    """Return the ledger of ``N_enc`` encoder layers over S tokens and ``N_dec`` decoder layers over T tokens.

    ``attention``: that of all layers, or a pair for encoder and decoder.
    With T = 0 it is the prefill: the encoder, and keys and values of its output.
    """
    of_encoder, of_decoder = encoder_and_decoder(attention)
    inner = {"F": F, "E_ff": E_ff, "K_ff": K_ff}
    return ledger(
        translation_embedding(B=B, S=S, T=T, d_m=d_m, V=V),
        encoder_layer("encoder.layers.*", of_encoder, B=B, T=S, d_m=d_m, **inner).repeat(N_enc),
        decoder_layer("decoder.layers.*", of_decoder, of_decoder, B=B, T=T, S=S, d_m=d_m, **inner).repeat(N_dec),
        tied_output(B=B, T=T, d_m=d_m, V=V),
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

    def own(path, *, B, T, S):
        return of_decoder(path, B=B, T=T, S=stored, n=stored - new)

    def cross(path, *, B, T, S):
        return of_decoder(path, B=B, T=T, S=S, n=S)

    rows, inner = {"B": B, "T": new, "d_m": d_m}, {"F": F, "E_ff": E_ff, "K_ff": K_ff}
    return ledger(
        Entry("embedding", "embedding", rows),
        Entry("", "elementwise", {"2": 2, **rows}),
        decoder_layer("decoder.layers.*", own, cross, B=B, T=new, S=S, d_m=d_m, **inner).repeat(N_dec),
        tied_output(B=B, T=new, d_m=d_m, V=V),
    )
