"""SwitchHead (arXiv 2312.07987): dense queries and keys per head, values and outputs from K of E experts per head.

V_i[t] = sum_{e in topK(s)} s_e x_t Wv_i,e with s = sigmoid(x_t Ws_i), chosen by the key token; y_t = sum_i
sum_{e in topK(s')} s'_e (A_i V_i)[t] Wo_i,e with s' = sigmoid(x_t Wd_i), chosen by the query token. Experts do not
compete: a gate is the sigmoid of its score.
"""

from headcount.formulas.blocks import cache, linear, past_len
from headcount.formulas.ledger import Entry, Ledger, Size, at, ledger
from headcount.formulas.mha import attention_ledger, rope


def layer(
    path: str,
    *,
    B: Size,
    T: Size,
    S: Size,
    d_m: Size,
    h: Size,
    d_h: Size,
    E: Size,
    K: Size,
    n: Size | None = None,
    rotary: bool = False,
) -> Ledger:
    """Return the ledger for T query and S key tokens, ``n`` of the S cached; None: no cache.

    MACs: B T d_m h (d_h + E + K d_h) of the queries' tokens, B (S - n) d_m h (d_h + E + K d_h) of the keys', and
    2 B h T S d_h.
    """
    queries, keys, width, heads = {"B": B, "T": T}, {"B": B, "S": S - past_len(n)}, {"d_m": d_m}, {"h": h, "d_h": d_h}
    experts, selected = {"h": h, "E": E}, {"h": h, "K": K}
    return ledger(
        linear(at(path, "q_proj"), queries, width, heads),
        linear(at(path, "k_proj"), keys, width, heads),
        _router(at(path, "router.value_proj"), keys, width, experts),
        linear(at(path, "v_proj"), {**keys, **selected}, width, {"d_h": d_h}, experts=experts),
        Entry(path, "elementwise", {**keys, **selected, "d_h": d_h}),
        rope(path, queries, heads, keys, heads) if rotary else (),
        attention_ledger(path, {"B": B, "h": h, "T": T, "S": S}, {"d_h": d_h}),
        _router(at(path, "router.out_proj"), queries, width, experts),
        Entry(path, "elementwise", {**queries, **selected, "d_h": d_h}),
        linear(at(path, "out_proj"), {**queries, **selected}, {"d_h": d_h}, width, experts=experts),
        cache(path, {"2": 2, **heads}, B=B, S=S, n=n),
    )


def _router(path, rows, width, experts) -> Ledger:
    """Return the ledger of the score of every expert of every head, and its sigmoid."""
    return ledger(linear(path, rows, width, experts), Entry(path, "elementwise", {**rows, **experts}))
