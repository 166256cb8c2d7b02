"""Encoder-decoder Transformer with any attention, and its translation embedding and output (section 5)."""

from formulas.ledger import Ledger, Size, ledger
from formulas.transformer import Mixer, decoder_layer, encoder_layer, tied_output, translation_embedding


def model(
    attention: Mixer,
    *,
    B: Size,
    S: Size,
    T: Size,
    d_m: Size,
    F: Size,
    V: Size,
    N_enc: Size,
    N_dec: Size,
) -> Ledger:
    """``N_enc`` encoder layers over S source tokens, ``N_dec`` decoder layers over T target tokens."""
    return ledger(
        translation_embedding(B=B, S=S, T=T, d_m=d_m, V=V),
        encoder_layer("encoder.layers.*", attention, B=B, T=S, d_m=d_m, F=F).repeat(N_enc),
        decoder_layer("decoder.layers.*", attention, attention, B=B, T=T, S=S, d_m=d_m, F=F).repeat(N_dec),
        tied_output(B=B, T=T, d_m=d_m, V=V),
    )
