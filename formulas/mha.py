"""Multi-head attention: Eq. 19 and 20 of arXiv 2210.05144 as printed, and the exact form.

W_att,i = Softmax(Q Wq_i (K Wk_i)^T / sqrt(d_h)), y = sum_i (W_att,i V Wv_i) Wo_i   (Eq. 4-5)
"""

from collections.abc import Mapping
from dataclasses import replace

from headcount.formulas.blocks import cache, linear, past_len
from headcount.formulas.ledger import Entry, Ledger, Size, at, divide, least, ledger


def macs_eq19(*, T: Size, d_m: Size) -> Size:
    """Return C_MHA = T^2 d_m + 4 T d_m^2, as printed; it omits one of the two T^2 products."""
    return T**2 * d_m + 4 * T * d_m**2


def params_eq20(*, d_m: Size) -> Size:
    """Return M_MHA = 4 d_m^2, as printed."""
    return 4 * d_m**2


def attention_ledger(
    path: str,
    pairs: Mapping[str, Size],
    width: Mapping[str, Size],
    values: Mapping[str, Size] | None = None,
    g: Size = 1,
    biased: bool = False,
) -> Ledger:
    """Return the ledger of scores, softmax and weighted values: a product of ``width`` and of ``values`` for each pair.

    ``pairs``: sizes of B, of the heads of a token, T, and the keys at the end. ``values``: width of a value; None:
    ``width``. ``g``: softmaxes of a pair. ``biased``: a bias is added to the scores.
    """
    *_, keys = pairs
    return ledger(
        Entry(path, "scores", {**pairs, **width}),
        Entry(path, "elementwise", pairs) if biased else (),
        Entry(path, "softmax", pairs if g == 1 else {**pairs, "g": g}),
        Entry(path, "values", {**pairs, **(values or width)}, summed=(keys,)),
    )


def rope(path: str, queries, heads, keys, kv_heads) -> Ledger:
    """Return the ledger of rotary positions on queries and on new keys."""
    return ledger(Entry(path, "rope", {**queries, **heads}), Entry(path, "rope", {**keys, **kv_heads}))


def causal_half(form: Ledger, window: Size | None = None) -> Ledger:
    """Return ``form`` of causal self-attention without the masked pairs.

    T (2 S - T + 1) / 2 of the T S pairs are left, T (T + 1) / 2 for S = T: the queries are the last T of S tokens.
    With a ``window`` a query sees itself and the ``window`` - 1 tokens before it.
    """

    def seen(tokens: Size) -> Size:
        """Return the pairs of the first ``tokens`` tokens with the keys in their windows."""
        keys = least(tokens, window)
        return divide(keys * (2 * tokens - keys + 1), 2)

    out = []
    for entry in form:
        if {"T", "S"} <= entry.dims.keys():
            T, S = entry.dims["T"], entry.dims["S"]
            rest = {letter: size for letter, size in entry.dims.items() if letter not in ("T", "S")}
            pairs = divide(T * (2 * S - T + 1), 2) if window is None else seen(S) - seen(S - T)
            entry = replace(entry, dims={**rest, "N_qk": pairs})
        out.append(entry)
    return Ledger(tuple(out))


def layer(
    path: str,
    *,
    B: Size,
    T: Size,
    S: Size,
    d_m: Size,
    h: Size,
    d_h: Size,
    g: Size | None = None,
    bias: bool = True,
    n: Size | None = None,
    rotary: bool = False,
) -> Ledger:
    """Return the ledger for T query and S key tokens, h heads of width d_h, g key/value heads (default: h).

    ``n``: number of the S tokens that are cached; None: no cache. ``rotary``: rotary positions on queries and keys.
    MACs: 2 B T d_m h d_h + 2 B (S - n) d_m g d_h + 2 B h T S d_h.
    """
    queries, keys = {"B": B, "T": T}, {"B": B, "S": S - past_len(n)}
    g = h if g is None else g
    width, heads, kv_heads = {"d_m": d_m}, {"h": h, "d_h": d_h}, {"g": g, "d_h": d_h}
    return ledger(
        linear(at(path, "q_proj"), queries, width, heads, bias),
        linear(at(path, "k_proj"), keys, width, kv_heads, bias),
        linear(at(path, "v_proj"), keys, width, kv_heads, bias),
        rope(path, queries, heads, keys, kv_heads) if rotary else (),
        attention_ledger(path, {"B": B, "h": h, "T": T, "S": S}, {"d_h": d_h}),
        linear(at(path, "out_proj"), queries, heads, width, bias),
        cache(path, {"2": 2, **kv_heads}, B=B, S=S, n=n),
    )
