"""Mixture-of-head attention (arXiv 2410.11842) without the heads that a token does not select: MoH's ideal form.

The same function of the same parameters as formulas/moh.py. Nothing of a head is computed for a token that does not
use it but its keys and values, which queries of other tokens read.
"""

from headcount.formulas.blocks import cache, linear, past_len, selected_linear
from headcount.formulas.ledger import Entry, Ledger, Size, at, least, ledger
from headcount.formulas.mha import attention_ledger, rope
from headcount.formulas.moh import norm_router, routing


def layer(
    path: str,
    *,
    B: Size,
    T: Size,
    S: Size,
    d_m: Size,
    h: Size,
    s: Size,
    r: Size,
    d_h: Size,
    g: Size,
    bias: bool = False,
    router: str = "linear",
    n: Size | None = None,
    rotary: bool = False,
) -> Ledger:
    """Return the ledger for T query and S key tokens, ``n`` of the S cached; None: no cache.

    MACs: 2 B T d_m k d_h + 2 B (S - n) d_m g d_h + 2 B k T S d_h and the routers, k = s + r; h for k in the
    queries of a ``query_norm`` router, whose norms need all of them. ``bias`` is not the routers'.
    """
    queries, keys, width = {"B": B, "T": T}, {"B": B, "S": S - past_len(n)}, {"d_m": d_m}
    all_heads, kv_heads, heads = {"h": h, "d_h": d_h}, {"g": g, "d_h": d_h}, {"k": s + r, "d_h": d_h}
    own_routing = routing(router)
    if own_routing is norm_router:
        q_proj = linear(at(path, "q_proj"), queries, width, all_heads, bias)
    else:
        q_proj = selected_linear(at(path, "q_proj"), queries, (width, heads), (width, all_heads), s, bias)
    return ledger(
        q_proj,
        own_routing(at(path, "router"), B=B, T=T, d_m=d_m, h=h, s=s, r=r, d_h=d_h),
        linear(at(path, "k_proj"), keys, width, kv_heads, bias),
        linear(at(path, "v_proj"), keys, width, kv_heads, bias),
        rope(path, queries, heads, keys, kv_heads) if rotary else (),
        attention_ledger(path, B=B, T=T, S=S, h=s + r, d_h=d_h, rows="k"),
        Entry(path, "elementwise", {**queries, **heads}),
        selected_linear(at(path, "out_proj"), queries, (heads, width), (all_heads, width), s, bias),
        () if n is None else cache(path, {"2": 2, **kv_heads}, B=B, S=S, n=n, g=_read_heads(T=T, h=h, s=s, r=r, g=g)),
    )


def _read_heads(*, T: Size, h: Size, s: Size, r: Size, g: Size) -> Size:
    """Return the key/value heads that T queries of a sequence read, for the routing that reads most.

    h / g heads share one: the s shared heads are of the first ceil(s g / h), and every routed head may be of another.
    """
    return least(g, -(-s * g // h) + T * r)
