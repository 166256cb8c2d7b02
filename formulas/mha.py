"""Multi-head attention: Eq. 19 and 20 of arXiv 2210.05144 as printed, and the exact form.

W_att,i = Softmax(Q Wq_i (K Wk_i)^T / sqrt(d_h)), y = sum_i (W_att,i V Wv_i) Wo_i   (Eq. 4-5)
"""

from formulas.ledger import Entry, Ledger, Size, at, ledger
from formulas.linear import linear


def macs_eq19(*, T: Size, d_m: Size) -> Size:
    """C_MHA = T^2 d_m + 4 T d_m^2, as printed; one of the two T^2 products is missing from it."""
    return T**2 * d_m + 4 * T * d_m**2


def params_eq20(*, d_m: Size) -> Size:
    """M_MHA = 4 d_m^2, as printed."""
    return 4 * d_m**2


def attention_ledger(
    path: str, *, B: Size, T: Size, S: Size, h: Size, d_h: Size, rows: str = "h", width: str = "d_h"
) -> Ledger:
    """Scores, softmax and weighted values of h heads of width d_h over T queries and S keys."""
    heads = {"B": B, rows: h, "T": T, "S": S}
    return ledger(
        Entry(path, "scores", {**heads, width: d_h}),
        Entry(path, "softmax", heads),
        Entry(path, "values", {**heads, width: d_h}),
    )


def layer(
    path: str,
    *,
    B: Size,
    T: Size,
    S: Size,
    d_m: Size,
    h: Size,
    d_h: Size,
    g: Size,
    bias: bool = True,
) -> Ledger:
    """The exact form: T query and S key tokens, h heads of width d_h, g key/value heads.

    MACs: 2 B T d_m h d_h + 2 B S d_m g d_h + 2 B h T S d_h.
    """
    queries, keys = {"B": B, "T": T}, {"B": B, "S": S}
    width, heads, kv_heads = {"d_m": d_m}, {"h": h, "d_h": d_h}, {"g": g, "d_h": d_h}
    return ledger(
        linear(at(path, "q_proj"), queries, width, heads, bias),
        linear(at(path, "k_proj"), keys, width, kv_heads, bias),
        linear(at(path, "v_proj"), keys, width, kv_heads, bias),
        attention_ledger(path, B=B, T=T, S=S, h=h, d_h=d_h),
        linear(at(path, "out_proj"), queries, heads, width, bias),
    )
