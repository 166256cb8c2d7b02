"""Dense decoders of published cost tables: GPT-3, Megatron-LM, Chinchilla, PaLM."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from headcount.formulas import llama
from headcount.formulas.blocks import layer_norm, linear, residual
from headcount.formulas.ledger import Entry, Ledger, Size, at, ledger
from headcount.formulas.moe_ffn import feed_forward
from headcount.formulas.transformer import Mixer

CAUSAL_PATHS = llama.CAUSAL_PATHS


def model(
    attention: Sequence[Mixer],
    *,
    B: Size,
    T: Size,
    d_m: Size,
    F: Size,
    V: Size,
    P: Size,
    h: Size,
    d_h: Size,
    bias: bool,
    gated: bool,
    tied: bool,
    parallel: bool,
    positions: str,
    n: Size | None = None,
) -> Ledger:
    """Return the :func:`llama.language_model` of one layer per ``attention``.

    bias: biases of the feed-forward block and of norms; attention has its own. gated: SwiGLU without biases.
    positions: learned (P rows), rotary, or relative as in Transformer-XL (a projection and two vectors of the h heads).
    """
    sizes, width, heads = {"B": B, "T": T, "d_m": d_m}, {"d_m": d_m}, {"h": h, "d_h": d_h}

    def relative(mixer: Mixer, path: str, *, S: Size, **lengths: Any) -> Ledger:
        position = linear(at(path, "position_proj"), {"S": S}, width, heads)
        vectors = Entry(path, "bias", {"B": B, "T": T, "2": 2, **heads}, weight={"2": 2, **heads})
        return ledger(mixer(path, S=S, **lengths), position, [vectors] if bias else ())

    learned = [
        Entry("position_embedding", "embedding", {"T": T, **width}, weight={"P": P, **width}),
        residual("", **sizes),
    ]
    mixers = {mixer: partial(relative, mixer) if positions == "relative" else mixer for mixer in attention}
    block = partial(feed_forward, F=F, gated=gated, bias=bias)
    return llama.language_model(
        [(mixers[mixer], block) for mixer in attention],
        **sizes,
        V=V,
        n=n,
        tied=tied,
        parallel=parallel,
        norm=layer_norm if bias else llama.root_mean_square_norm,
        positions={"learned": learned, "relative": (), "rotary": None}[positions],
    )
