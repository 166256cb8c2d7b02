"""Pre-norm causal language model: RMSNorm, rotary positions, SwiGLU, untied output projection."""

from collections.abc import Sequence
from typing import Any

from headcount.formulas import moe_ffn
from headcount.formulas.blocks import linear, past_len, residual, rms_norm
from headcount.formulas.ledger import Entry, Ledger, Size, at, ledger, stack
from headcount.formulas.transformer import Mixer, tied_output

CAUSAL_PATHS = r"layers\..+\.self_attn"
"""Module paths of causal attention."""


def gated_feed_forward(
    path: str, *, B: Size, T: Size, d_m: Size, F: Size, E_ff: Size = 0, K_ff: Size = 0, output_bias: bool = False
) -> Ledger:
    """Return the ledger of SwiGLU without biases: 3 B T d_m F MACs; with ``E_ff`` experts, K_ff of them per token.

    ``output_bias``: a bias after the sum over experts."""
    if E_ff != 0:
        return moe_ffn.layer(path, B=B, T=T, d_m=d_m, F=F, E=E_ff, K=K_ff, gated=True, output_bias=output_bias)
    rows, width, inner = {"B": B, "T": T}, {"d_m": d_m}, {"F": F}
    return ledger(
        linear(at(path, "gate_proj"), rows, width, inner),
        linear(at(path, "up_proj"), rows, width, inner),
        Entry(path, "activation", {**rows, **inner}),
        Entry(path, "elementwise", {**rows, **inner}),
        linear(at(path, "down_proj"), rows, inner, width),
    )


def layer(path: str, attention: Mixer, *, B: Size, T: Size, d_m: Size, n: Size | None, **inner: Any) -> Ledger:
    """Return the ledger of rotary self-attention and feed-forward of sizes ``inner``, each after a norm.

    n: number of cached tokens; None: no cache.
    """
    tokens, width = {"B": B, "T": T}, {"d_m": d_m}
    rows = {**tokens, **width}
    return ledger(
        rms_norm(at(path, "self_attn_norm"), tokens, width),
        attention(at(path, "self_attn"), B=B, T=T, S=past_len(n) + T, n=n, rotary=True),
        residual(path, **rows),
        rms_norm(at(path, "feed_forward_norm"), tokens, width),
        gated_feed_forward(at(path, "feed_forward"), **inner, **rows),
        residual(path, **rows),
    )


def step(attention: Sequence[Mixer], *, new: Size, stored: Size, **sizes: Size) -> Ledger:
    """Return the ledger of a decode step: ``new`` tokens, ``stored`` in the caches after the step, logits per token."""
    return model(attention, T=new, n=stored - new, **sizes)


def model(
    attention: Sequence[Mixer],
    *,
    B: Size,
    T: Size,
    d_m: Size,
    F: Size,
    V: Size,
    E_ff: Size = 0,
    K_ff: Size = 0,
    n: Size | None = None,
    output_bias: bool = False,
    tied: bool = False,
) -> Ledger:
    """Return the ledger of one layer per ``attention`` over T tokens, as executed: all T x T pairs.

    n: number of cached tokens; None: no cache. ``output_bias``: see :func:`gated_feed_forward`. ``tied``: the output
    projection uses the embedding's weight.
    """
    rows, width = {"B": B, "T": T}, {"d_m": d_m}
    inner = {"F": F, "E_ff": E_ff, "K_ff": K_ff, "output_bias": output_bias}
    return ledger(
        Entry("embedding", "embedding", {**rows, **width}, weight={"V": V, **width}),
        stack("layers", attention, lambda path, mixer: layer(path, mixer, B=B, T=T, d_m=d_m, n=n, **inner)),
        rms_norm("norm", rows, width),
        tied_output(B=B, T=T, d_m=d_m, V=V) if tied else linear("output_proj", rows, width, {"V": V}),
    )
