"""Encoder-decoder Transformer with any attention, and its translation embedding and output (section 5)."""

from headcount.formulas.ledger import Entry, Ledger, Size, ledger
from headcount.formulas.transformer import (
    Mixer,
    decoder_layer,
    encoder_layer,
    in_both,
    tied_output,
    translation_embedding,
)


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
    """``N_enc`` encoder layers over S source tokens, ``N_dec`` decoder layers over T target tokens.

    ``attention`` is that of all layers, or of the encoder's and of the decoder's.
    Without target tokens, T = 0, it is what comes before the first step: the encoder, and its output's keys and values.
    """
    of_encoder, of_decoder = in_both(attention)
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
    """The decoder on ``new`` target tokens, ``stored`` after them, reading S source tokens projected before."""
    _, of_decoder = in_both(attention)

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
