"""Pre-norm causal language model: RMSNorm, rotary positions, SwiGLU, an output projection of its own."""

from collections.abc import Sequence
from typing import Any

from headcount.formulas import moe_ffn
from headcount.formulas.blocks import cached, linear, residual, rms_norm
from headcount.formulas.ledger import Entry, Ledger, Size, at, ledger, stack
from headcount.formulas.transformer import Mixer


def gated_feed_forward(
    path: str, *, B: Size, T: Size, d_m: Size, F: Size, E_ff: Size = 0, K_ff: Size = 0, output_bias: bool = False
) -> Ledger:
    """SwiGLU: 3 B T d_m F MACs, no biases. With ``E_ff`` experts, those of ``K_ff`` of them for each token, and an
    ``output_bias`` where they have one."""
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
    """Causal self-attention with rotary positions, and feed-forward of the sizes ``inner``, each behind a norm.

    n tokens are in a cache.
    """
    tokens, width = {"B": B, "T": T}, {"d_m": d_m}
    rows = {**tokens, **width}
    return ledger(
        rms_norm(at(path, "self_attn_norm"), tokens, width),
        attention(at(path, "self_attn"), B=B, T=T, S=cached(n) + T, n=n, rotary=True),
        residual(path, **rows),
        rms_norm(at(path, "feed_forward_norm"), tokens, width),
        gated_feed_forward(at(path, "feed_forward"), **inner, **rows),
        residual(path, **rows),
    )


def step(attention: Sequence[Mixer], *, new: Size, stored: Size, **sizes: Size) -> Ledger:
    """The model on ``new`` tokens, ``stored`` in the caches after them; logits of each new one."""
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
) -> Ledger:
    """One layer for each of ``attention``, over T tokens as executed: the whole T x T square.

    Keys and values of ``n`` tokens before them are in caches; None: there are none.
    """
    rows, width, inner = {"B": B, "T": T}, {"d_m": d_m}, {"F": F, "E_ff": E_ff, "K_ff": K_ff}
    return ledger(
        Entry("embedding", "embedding", {**rows, **width}, weight={"V": V, **width}),
        stack("layers", attention, lambda path, mixer: layer(path, mixer, B=B, T=T, d_m=d_m, n=n, **inner)),
        rms_norm("norm", rows, width),
        linear("output_proj", rows, width, {"V": V}),
    )
