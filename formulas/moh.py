"""Mixture-of-head attention (arXiv 2410.11842): as released, every head is computed, then weighted by its gate.

MoH(X, X') = sum_i g_i H^i W_O^i (Eq. 3-4): of h heads, s are shared and r of the E = h - s others are selected
per token, so a token uses k = s + r. Keys and values of all heads are computed: any later query may select the
head. The ideal form is the same function of the same parameters: nothing of a head is computed for a token that does
not use it but its keys and values, which queries of other tokens read.
"""

from fractions import Fraction

from headcount.formulas.blocks import cache, is_ideal, linear, past_len
from headcount.formulas.ledger import Entry, Ledger, Size, at, least, ledger
from headcount.formulas.mha import attention_ledger, rope


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
    form: str = "released",
    n: Size | None = None,
    rotary: bool = False,
) -> Ledger:
    """Return the ledger for T query and S key tokens, ``n`` of the S cached; None: no cache.

    MACs: 2 B T d_m h d_h + 2 B (S - n) d_m g d_h + 2 B h T S d_h and the routers, which have no bias. ``g``: heads
    of keys and values. ``form`` "ideal": s + r for h, but in the queries of a ``query_norm`` router, whose norms need
    all.
    """
    ideal = is_ideal(form)
    queries, keys, width = {"B": B, "T": T}, {"B": B, "S": S - past_len(n)}, {"d_m": d_m}
    used = {"k": s + r} if ideal else {"h": h}
    heads, all_heads, kv_heads = {**used, "d_h": d_h}, {"h": h, "d_h": d_h}, {"g": g, "d_h": d_h}
    projected = all_heads if router == "query_norm" else heads
    read = {"g": _read_heads(T=T, h=h, s=s, r=r, g=g)} if ideal and n is not None else {}
    return ledger(
        linear(at(path, "q_proj"), queries, width, projected, bias, stored=(width, all_heads), shared=s),
        routing(router)(at(path, "router"), B=B, T=T, d_m=d_m, h=h, s=s, r=r, d_h=d_h),
        linear(at(path, "k_proj"), keys, width, kv_heads, bias),
        linear(at(path, "v_proj"), keys, width, kv_heads, bias),
        rope(path, queries, heads, keys, kv_heads) if rotary else (),
        attention_ledger(path, {"B": B, **used, "T": T, "S": S}, {"d_h": d_h}),
        Entry(path, "elementwise", {**queries, **heads}),
        linear(at(path, "out_proj"), queries, heads, width, bias, stored=(all_heads, width), shared=s),
        cache(path, {"2": 2, **kv_heads}, B=B, S=S, n=n, **read),
    )


def _read_heads(*, T: Size, h: Size, s: Size, r: Size, g: Size) -> Size:
    """Return the key/value heads that T queries of a sequence read, for the routing that reads most.

    h / g heads share one: the s shared heads are of the first ceil(s g / h), and every routed head may be of another.
    """
    return least(g, -(-s * g // h) + T * r)


def linear_router(path: str, *, B: Size, T: Size, d_m: Size, h: Size, s: Size, r: Size, d_h: Size) -> Ledger:
    """Return the ledger of the routers: over E heads if r > 0, the shared ones if s > 1, two groups if both are not 0.

    MACs where r > 0: B T d_m (h + 2) if s > 1, B T d_m (h + 1) if s = 1, B T d_m h if s = 0. Where r = 0: B T d_m h
    if h > 1, else none.
    """
    tokens, width = {"B": B, "T": T}, {"d_m": d_m}
    groups = [("routed", {"E": h - s})] if r != 0 else []
    if s not in (0, 1):
        groups.append(("shared", {"s": s}))
    if r != 0 and s != 0:
        groups.append(("group", {"2": 2}))
    out = ledger()
    for name, size in groups:
        out += linear(at(path, f"{name}_proj"), tokens, width, size)
        out += ledger(Entry(path, "softmax", {**tokens, **size}))
    return out


def norm_router(path: str, *, B: Size, T: Size, d_m: Size, h: Size, s: Size, r: Size, d_h: Size) -> Ledger:
    """Return the ledger of a router that scores heads by the norm of their query: no MACs, B T E d_h squares."""
    routed = {"B": B, "T": T, "E": h - s}
    if r == 0:
        return ledger()
    return ledger(Entry(path, "elementwise", {**routed, "d_h": d_h}), Entry(path, "softmax", routed))


ROUTERS = {"linear": linear_router, "query_norm": norm_router}


def routing(router: str):
    """Return the ledger function of ``router``. Raises ValueError for an unknown name."""
    if router not in ROUTERS:
        raise ValueError(f"unknown router {router!r}; choose from {', '.join(ROUTERS)}")
    return ROUTERS[router]


def activated_percent(released: Ledger, ideal: Ledger) -> Fraction | None:
    """Return the percentage of heads that a token uses, over all layers: the paper's "#Activated heads (%)".

    ``released`` and ``ideal`` are the two forms of one model; of a model without routing both are the same. None of a
    model whose scores are not of heads, as experts of MoA, or that has none.
    """
    used, heads = _heads(ideal), _heads(released)
    return None if used is None or heads is None else 100 * Fraction(used, heads)


def shared_percent(ideal: Ledger) -> Fraction | None:
    """Return the percentage of a token's heads that are shared, over all layers: the "shared heads ratio" of Table 6.

    0 for a model without routing. None as of :func:`activated_percent`.
    """
    if _heads(ideal) is None:
        return None
    used = [
        entry
        for entry in ideal
        if entry.kind == "expert_linear" and "k" in entry.dims and entry.path.endswith("out_proj")
    ]
    total = sum(entry.times * entry.dims["k"] for entry in used)
    return 100 * Fraction(sum(entry.times * entry.shared for entry in used), total) if total else Fraction(0)


def activated_macs_percent(released: Ledger, ideal: Ledger) -> Fraction:
    """Return :func:`activated_percent` with each head weighted by its MACs.

    The MACs of a head are those skipped if it is not selected: scores, weighted values, its rows of the output
    projection and of the query projection, unless the router needs all queries.
    """
    skipping = {entry.path for entry in ideal if entry.macs and "k" in entry.dims}
    if not skipping:
        return Fraction(100)
    done, all_of = (form.select(lambda entry: entry.path in skipping).macs for form in (ideal, released))
    return 100 * Fraction(done, all_of)


def _heads(form: Ledger) -> int | None:
    # a layer may have scores of several sorts of keys
    scores = {entry.path: entry for entry in form if entry.kind == "scores"}
    if not scores or not all(entry.dims.keys() & {"h", "k"} for entry in scores.values()):
        return None
    return sum(entry.times * (entry.dims["k"] if "k" in entry.dims else entry.dims["h"]) for entry in scores.values())
