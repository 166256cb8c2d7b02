"""Encoder-decoder Transformer with any attention, and its translation embedding and output (section 5)."""

from functools import partial

from headcount.formulas.blocks import past_len
from headcount.formulas.ledger import Ledger, Size
from headcount.formulas.transformer import Mixer, encoder_and_decoder, layer, translation

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
    n: Size | None = None,
    **inner: Size,
) -> Ledger:
    """Return the ledger of ``N_enc`` encoder layers over S tokens and ``N_dec`` decoder layers over T tokens.

    ``attention``: that of all layers, or a pair for encoder and decoder. ``inner``: sizes of
    :func:`headcount.formulas.moe_ffn.feed_forward`. ``n``: number of cached target tokens, with S source tokens.
    With T = 0 and no cache it is the prefill: the encoder, and keys and values of its output.
    """
    of_encoder, of_decoder = encoder_and_decoder(attention)
    encoder = {"self_attn": partial(of_encoder, B=B, T=S, S=S)}
    decoder = {
        "self_attn": partial(of_decoder, B=B, T=T, S=past_len(n) + T, n=n),
        "cross_attn": partial(of_decoder, B=B, T=T, S=S, n=None if n is None else S),
    }
    return translation(
        layer("encoder.layers.*", encoder, B=B, T=S, d_m=d_m, **inner).repeat(N_enc),
        layer("decoder.layers.*", decoder, B=B, T=T, d_m=d_m, **inner).repeat(N_dec),
        **{"B": B, "S": S, "T": T, "d_m": d_m, "V": V, "n": n},
    )
