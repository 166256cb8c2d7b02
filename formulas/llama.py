"""Pre-norm causal language models: RMSNorm, rotary positions, SwiGLU and an untied output projection as in LLaMA.

:func:`language_model` is the frame that other models of this kind change parts of.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from headcount.formulas.blocks import linear, past_len, rms_norm
from headcount.formulas.ledger import Entry, Ledger, Size, ledger, stack
from headcount.formulas.moe_ffn import feed_forward
from headcount.formulas.transformer import Mixer, residual_blocks, tied_output

CAUSAL_PATHS = r"layers\..+\.self_attn"
"""Module paths of causal attention."""

Block = Callable[..., Ledger]
"""A part of a layer that reads B T tokens of width d_m: ``block(path, B=, T=, d_m=) -> Ledger``."""


def root_mean_square_norm(path: str, *, B: Size, T: Size, d_m: Size) -> Entry:
    """Return the entry of RMSNorm over d_m with scale."""
    return rms_norm(path, {"B": B, "T": T}, {"d_m": d_m})


def layer(
    path: str,
    parts: tuple[Mixer, Block],
    *,
    n: Size | None,
    norm: Callable[..., Entry] = root_mean_square_norm,
    parallel: bool = False,
    rotary: bool = True,
    **sizes: Size,
) -> Ledger:
    """Return the ledger of the attention and the feed-forward block of ``parts``; see :func:`language_model`."""
    attention, feed_forward = parts
    B, T = sizes["B"], sizes["T"]
    mixer = partial(attention, B=B, T=T, S=past_len(n) + T, n=n, rotary=rotary)
    blocks = {"self_attn": mixer, "feed_forward": partial(feed_forward, **sizes)}
    return residual_blocks(path, blocks, norm=norm, is_parallel=parallel, **sizes)


def language_model(
    layers: Iterable[tuple[Mixer, Block]],
    *,
    B: Size,
    T: Size,
    d_m: Size,
    V: Size,
    n: Size | None = None,
    tied: bool = False,
    parallel: bool = False,
    norm: Callable[..., Entry] = root_mean_square_norm,
    positions: Iterable[Entry] | None = None,
) -> Ledger:
    """Return the ledger of attention and feed-forward block of each of ``layers`` over T tokens, as executed: all
    T x T pairs.

    n: number of cached tokens; None: no cache. tied: the output projection uses the embedding's weight. parallel:
    attention and feed-forward block read one norm. positions: entries after the embedding; None: rotary positions.
    """
    sizes = {"B": B, "T": T, "d_m": d_m}
    block = partial(layer, n=n, norm=norm, parallel=parallel, rotary=positions is None, **sizes)
    return ledger(
        Entry("embedding", "embedding", sizes, weight={"V": V, "d_m": d_m}),
        positions or (),
        stack("layers", list(layers), block),
        norm("norm", **sizes),
        tied_output(V=V, **sizes) if tied else linear("output_proj", {"B": B, "T": T}, {"d_m": d_m}, {"V": V}),
    )


def model(
    attention: Sequence[Mixer],
    *,
    F: Size,
    E_ff: Size = 0,
    K_ff: Size = 0,
    output_bias: bool = False,
    **sizes: Size,
) -> Ledger:
    """Return the :func:`language_model` of one layer per ``attention``, each with a gated :func:`feed_forward`."""
    block = partial(feed_forward, F=F, E_ff=E_ff, K_ff=K_ff, gated=True, output_bias=output_bias)
    return language_model([(mixer, block) for mixer in attention], **sizes)
