"""Aggregated attention (TransNeXt, arXiv 2311.17132): a window of neighbours and pooled keys under one softmax.

T tokens lie on a square grid. A query sees the w = 9 tokens around it and M pooled ones; where nothing is pooled
(M = 0) it sees all T. Queries and keys have length 1 and are scaled by a learned factor; a two-layer network of the
relative position adds a bias to every score.
"""

from functools import partial

from headcount.formulas.blocks import linear
from headcount.formulas.ledger import Entry, Ledger, Size, at, ledger
from headcount.formulas.mha import attention_ledger

WINDOW = 9
"""Tokens of a 3 x 3 window."""


def layer(
    path: str,
    *,
    B: Size,
    d_m: Size,
    h: Size,
    d_h: Size,
    T: Size,
    M: Size,
    N_pos: Size,
    d_pos: Size,
    k: Size | None = None,
    s: Size = 0,
) -> Ledger:
    """Return the ledger of self-attention over T tokens with biased projections; M = 0: no pooling.

    With ``k``, a token uses k heads, ``s`` of which are shared by all tokens; keys and values of all h are computed.
    MACs with K = k or h: B T d_m (2 K d_h + 2 h d_h) and N_pos d_pos (2 + h), and 2 B K T T d_h where nothing is
    pooled, else B T d_m^2 + 2 B M d_m h d_h + B K T d_h (3 w + 2 M).
    """
    queries, width, all_heads = {"B": B, "T": T}, {"d_m": d_m}, {"h": h, "d_h": d_h}
    # keys and values of every token, and of the pooled ones by the same weights
    keys = {"B": B, "N_kv": T + M}
    used = {"h": h} if k is None else {"k": k}
    heads = {**used, "d_h": d_h}
    product = "linear" if k is None else "expert_linear"
    selected = {} if k is None else {"shared": s}
    pairs = {"B": B, **used, "T": T}
    attend = partial(attention_ledger, width={"d_h": d_h}, biased=True)

    learned = [
        Entry(path, "elementwise", {**queries, **heads}),
        Entry(path, "elementwise", {**queries, **heads}, weight=all_heads, **selected),
        Entry(path, "elementwise", {**queries, **heads}, weight={"h": h}, **selected),
        Entry(path, "elementwise", {**keys, **all_heads}),
    ]
    return ledger(
        linear(at(path, "q_proj"), queries, width, heads, True, stored=(width, all_heads), shared=s),
        linear(at(path, "k_proj"), keys, width, all_heads, True),
        linear(at(path, "v_proj"), keys, width, all_heads, True),
        learned,
        position(at(path, "position"), N_pos=N_pos, d_pos=d_pos, h=h),
        attend(path, {**pairs, "S": T}) if M == 0 else (),
        pooling(path, B=B, T=T, M=M, d_m=d_m) if M != 0 else (),
        _window(path, pairs, h, d_h, product, selected) if M != 0 else (),
        attend(path, {**pairs, "M": M}) if M != 0 else (),
        # sum of the outputs of window and pooled tokens
        Entry(path, "elementwise", {**queries, **heads}) if M != 0 else (),
        linear(at(path, "out_proj"), queries, heads, width, True, stored=(all_heads, width), shared=s),
    )


def position(path: str, *, N_pos: Size, d_pos: Size, h: Size) -> Ledger:
    """Return the ledger of the biases of N_pos relative positions, once per batch: N_pos d_pos (2 + h) MACs."""
    rows, inner = {"N_pos": N_pos}, {"d_pos": d_pos}
    return ledger(
        linear(at(path, "fc1"), rows, {"2": 2}, inner, True, from_input=True),
        Entry(path, "activation", {**rows, **inner}),
        linear(at(path, "fc2"), rows, inner, {"h": h}, True),
    )


def pooling(path: str, *, B: Size, T: Size, M: Size, d_m: Size) -> Ledger:
    """Return the ledger of pooling: a linear layer on every token, GELU, the mean of each block, LayerNorm."""
    tokens, width = {"B": B, "T": T}, {"d_m": d_m}
    return ledger(
        linear(at(path, "pool_proj"), tokens, width, {"d_out": d_m}, True),
        Entry(path, "activation", {**tokens, **width}),
        Entry(path, "pooling", {**tokens, **width}),
        Entry(at(path, "pool_norm"), "norm", {"B": B, "M": M, **width}, weight={"2": 2, **width}),
    )


def _window(path, pairs, h, d_h, product, selected) -> Ledger:
    """Return the ledger of attention in the window: products of queries and learned tokens are added to the softmax."""
    window = {"w": WINDOW}
    of_heads, learned = {"h": h, **window}, {"d_h": d_h, **window}
    return ledger(
        Entry(path, "scores", {**pairs, **window, "d_h": d_h}),
        Entry(path, "elementwise", {**pairs, **window}, weight=of_heads, **selected),
        Entry(path, "softmax", {**pairs, **window}),
        Entry(path, product, {**pairs, **learned}, weight={"h": h, **learned}, summed=("d_h",), **selected),
        Entry(path, "elementwise", {**pairs, **window}),
        Entry(path, "elementwise", {**pairs, **window}, weight=of_heads, **selected),
        Entry(path, "values", {**pairs, **window, "d_h": d_h}, summed=("w",)),
    )
