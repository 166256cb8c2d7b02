"""Mixture-of-head attention (arXiv 2410.11842): the released form, which computes every head, and the ideal one.

MoH(X, X') = sum_i g_i H^i W_O^i (Eq. 3-4): of h heads, s are shared and r of the E = h - s others are selected
per token, so a token uses k = s + r. Keys and values of all heads stay: a head's key and value at a token are
read by every query that selected the head, whatever the token itself selected.
"""

from fractions import Fraction

from headcount.formulas.blocks import linear
from headcount.formulas.ledger import MAC_KINDS, Entry, Ledger, Size, at, ledger
from headcount.formulas.mha import attention_ledger, rope

FORMS = ("released", "ideal")


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
    n: Size = 0,
    rotary: bool = False,
) -> Ledger:
    """T query and S key tokens; keys and values of ``n`` of the S are in a cache. ``bias`` is not the routers'.

    MACs as ``released``: 2 B T d_m h d_h + 2 B (S - n) d_m g d_h + 2 B h T S d_h and the routers.
    ``ideal``: k for h, but for the queries of a ``query_norm`` router, whose norms need all of them.
    """
    if form not in FORMS:
        raise ValueError(f"unknown form {form!r}; choose from {', '.join(FORMS)}")
    ideal = form == "ideal"
    queries, keys, width = {"B": B, "T": T}, {"B": B, "S": S - n}, {"d_m": d_m}
    all_heads, kv_heads = {"h": h, "d_h": d_h}, {"g": g, "d_h": d_h}
    heads = {"k": s + r, "d_h": d_h} if ideal else all_heads
    if ideal and router == "linear":
        q_proj = _selected(at(path, "q_proj"), {**queries, **width, **heads}, {**width, **all_heads}, s)
        if bias:
            q_proj += ledger(Entry(at(path, "q_proj"), "expert_bias", {**queries, **heads}, weight=all_heads, shared=s))
    else:
        q_proj = linear(at(path, "q_proj"), queries, width, all_heads, bias)
    if ideal:
        out_proj = _selected(at(path, "out_proj"), {**queries, **heads, **width}, {**all_heads, **width}, s)
        if bias:
            out_proj += ledger(Entry(at(path, "out_proj"), "expert_bias", {**queries, **width}, weight=width))
    else:
        out_proj = linear(at(path, "out_proj"), queries, all_heads, width, bias)
    return ledger(
        q_proj,
        routers(at(path, "router"), B=B, T=T, d_m=d_m, h=h, s=s, r=r, d_h=d_h, router=router),
        linear(at(path, "k_proj"), keys, width, kv_heads, bias),
        linear(at(path, "v_proj"), keys, width, kv_heads, bias),
        rope(path, queries, heads, keys, kv_heads) if rotary else (),
        attention_ledger(path, B=B, T=T, S=S, h=s + r if ideal else h, d_h=d_h, rows="k" if ideal else "h"),
        Entry(path, "elementwise", {**queries, **heads}),
        out_proj,
    )


def _selected(path, dims, weight, shared) -> Ledger:
    """A product with the rows of the heads that each token uses."""
    return ledger(Entry(path, "expert_linear", dims, weight=weight, shared=shared))


def routers(path: str, *, B: Size, T: Size, d_m: Size, h: Size, s: Size, r: Size, d_h: Size, router: str) -> Ledger:
    """The routers that exist: over E heads and over the two groups where r > 0, over the shared heads where s > 1.

    MACs: B T d_m (h + 2) where r > 0 and s > 1, B T d_m (h + 1) where s = 1, B T d_m h where r = 0 (s = h) or
    s = 0. The ``query_norm`` router has no weights: B T E d_h squarings and no product.
    """
    tokens, width, routed = {"B": B, "T": T}, {"d_m": d_m}, {"E": h - s}
    if router == "query_norm":
        squares = Entry(path, "elementwise", {**tokens, **routed, "d_h": d_h})
        return ledger(squares, Entry(path, "softmax", {**tokens, **routed})) if r != 0 else ledger()
    groups = [("routed", routed)] if r != 0 else []
    if s not in (0, 1):
        groups.append(("shared", {"s": s}))
    if r != 0 and s != 0:
        groups.append(("group", {"2": 2}))
    out = ledger()
    for name, size in groups:
        out += linear(at(path, f"{name}_proj"), tokens, width, size)
        out += ledger(Entry(path, "softmax", {**tokens, **size}))
    return out


def decode_step(path: str, *, B: Size, n: Size, **sizes) -> Ledger:
    """One new token of each sequence, with the keys and values of ``n`` earlier ones in a cache."""
    return layer(path, B=B, T=1, S=n + 1, n=n, **sizes)


def activated_percent(released: Ledger, ideal: Ledger) -> Fraction:
    """Heads that a token uses, of all heads of all layers: the paper's "#Activated heads (%)".

    ``released`` and ``ideal`` are the two forms of one model; a model without routing is both.
    """
    return 100 * Fraction(_heads(ideal), _heads(released))


def activated_work_percent(released: Ledger, ideal: Ledger) -> Fraction:
    """As :func:`activated_percent`, a head weighing as many MACs as it takes in its layer.

    A head's work is what is left out where it is not selected: its scores, its weighted values, its rows of the
    output projection and of the query projection, unless the router needs all queries.
    """
    skipping = {entry.path for entry in ideal if entry.macs and "k" in entry.dims}
    if not skipping:
        return Fraction(100)
    done, all_of = (form.select(lambda entry: entry.path in skipping).macs for form in (ideal, released))
    return 100 * Fraction(done, all_of)


def _heads(form: Ledger) -> int:
    # a layer may have scores of several sorts of keys
    scores = {entry.path: entry for entry in form if entry.kind == "scores"}
    return sum(entry.times * (entry.dims["k"] if "k" in entry.dims else entry.dims["h"]) for entry in scores.values())


def skipped(released: Ledger, ideal: Ledger) -> dict[tuple[str, str], int]:
    """MACs that the ideal form leaves out, by module path and what is done there."""

    def by_operation(form: Ledger) -> dict[tuple[str, str], int]:
        contractions = form.select(lambda entry: entry.kind in MAC_KINDS)
        return contractions.group(lambda entry: (entry.path, entry.kind.removeprefix("expert_")))

    kept = by_operation(ideal)
    return {key: macs - kept[key] for key, macs in by_operation(released).items() if macs != kept[key]}
