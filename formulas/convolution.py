"""Light and dynamic convolution in place of self-attention (arXiv 1901.10430), in an encoder-decoder.

A block is Linear d_m to 2 d_m, GLU, a depth-wise convolution whose kernels are softmax-normalised and shared
by channels in h_w groups, Linear d_m to d_m. A dynamic convolution predicts its kernels from each token.
"""

from collections.abc import Sequence
from functools import partial

from headcount.formulas.blocks import linear
from headcount.formulas.ledger import Entry, Ledger, Size, at, least, ledger
from headcount.formulas.transformer import Mixer, encoder_and_decoder, layer, translation


def block(
    path: str, *, B: Size, T: Size, d_m: Size, h_w: Size, w: Size, dynamic: bool, band: bool = False, n: Size = None
) -> Ledger:
    """Return the ledger of one block: B T d_m (3 d_m + w) MACs, and B T d_m h_w w for predicted kernels if dynamic.

    Taps outside the sequence are counted. With ``band``, a product with a band matrix per group, there are T taps per
    token instead of w. ``n``: number of previous tokens, w - 1 of which are cached; None: no cache.
    """
    rows, width, kernel = {"B": B, "T": T}, {"d_m": d_m}, {"h_w": h_w, "w": w}
    kind, taps = ("contraction", {"S": T}) if band and n is None else ("conv", {"w": w})
    return ledger(
        linear(at(path, "in_proj"), rows, width, {"2": 2, "d_out": d_m}, bias=True),
        # a gated linear unit, which no counter counts
        Entry(path, "elementwise", {**rows, **width}),
        linear(at(path, "kernel_proj"), rows, width, kernel) if dynamic else (),
        Entry(path, "softmax", {**rows, **kernel} if dynamic else kernel),
        Entry(path, kind, {**rows, **width, **taps}, weight={} if dynamic else kernel, summed=tuple(taps)),
        linear(at(path, "out_proj"), rows, width, {"d_out": d_m}, bias=True),
        () if n is None else _cache(path, B=B, T=T, d_m=d_m, w=w, n=n),
    )


def _cache(path, *, B, T, d_m, w, n) -> Ledger:
    """Return the ledger of a cache of the inputs of the last w - 1 tokens."""
    tokens = {"cache": n + T, "cache_write": T, "cache_read": n}
    return ledger(*(Entry(path, kind, {"B": B, "N_w": least(x, w - 1), "d_m": d_m}) for kind, x in tokens.items()))


def model(
    attention: Mixer | tuple[Mixer, Mixer],
    *,
    B: Size,
    S: Size,
    T: Size,
    d_m: Size,
    V: Size,
    h_w: Size,
    encoder_kernels: Sequence[Size],
    decoder_kernels: Sequence[Size],
    dynamic: bool,
    band: bool = False,
    n: Size | None = None,
    **inner: Size,
) -> Ledger:
    """Return the ledger of a model with one layer per kernel size; ``attention`` is the decoder's cross-attention.

    ``inner``: sizes of :func:`headcount.formulas.moe_ffn.feed_forward`. ``n``: number of cached target tokens, with
    S source tokens. With T = 0 and no cache it is the prefill: the encoder, and keys and values of its output.
    """
    _, cross = encoder_and_decoder(attention)
    source, target = {"B": B, "T": S, "d_m": d_m}, {"B": B, "T": T, "d_m": d_m}
    conv = partial(block, h_w=h_w, dynamic=dynamic, band=band)
    cross_attn = partial(cross, B=B, T=T, S=S, n=None if n is None else S)
    encoder, decoder = [], []
    for i, w in enumerate(encoder_kernels):
        encoder.append(layer(f"encoder.layers.{i}", {"conv": partial(conv, w=w, **source)}, **source, **inner))
    for i, w in enumerate(decoder_kernels):
        mixers = {"conv": partial(conv, w=w, n=n, **target), "cross_attn": cross_attn}
        decoder.append(layer(f"decoder.layers.{i}", mixers, **target, **inner))
    return translation(ledger(*encoder), ledger(*decoder), B=B, S=S, T=T, d_m=d_m, V=V, n=n)


def slope_changes(*, decoder_kernels: Sequence[int], **_) -> tuple[int, ...]:
    """Return the numbers of stored tokens at which a step's cost changes slope: full caches and full windows."""
    return tuple(sorted({length for w in decoder_kernels for length in (w - 1, w)}))
