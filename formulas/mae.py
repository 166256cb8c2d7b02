"""Mixture of attentive experts (arXiv 2005.06537): h experts, each all heads but one.

A gate on the mean token weighs the experts: g = Softmax(W2 tanh(W1 mean(x))). The mixture of experts is one
weight per head, h (1 - g_j) / (h - 1), so the heads themselves are computed once, as in multi-head attention.
"""

from headcount.formulas.blocks import linear
from headcount.formulas.ledger import Entry, Ledger, Size, at, ledger
from headcount.formulas.mha import layer as multi_head_attention


def layer(
    path: str,
    *,
    B: Size,
    T: Size,
    S: Size,
    d_m: Size,
    h: Size,
    d_h: Size,
    G: Size,
    bias: bool = True,
    gate: str = "sequence",
    n: Size | None = None,
) -> Ledger:
    """Return the ledger of multi-head attention and the gate: B G (d_m + h) MACs, T times that if ``gate="running"``.

    A running gate is a function of the mean of the tokens so far. ``n``: number of the S tokens that are cached; None:
    no cache. The cache also holds the gate's weights, or the sum and number of tokens of a running gate.
    """
    rows = {"B": B, "T": T} if gate == "running" else {"B": B}
    return ledger(
        gate_network(at(path, "gate"), rows, d_m=d_m, G=G, h=h, bias=bias) if n is None or "T" in rows else (),
        multi_head_attention(path, B=B, T=T, S=S, d_m=d_m, h=h, d_h=d_h, g=h, bias=bias, n=n),
        Entry(path, "elementwise", {"B": B, "T": T, "h": h, "d_h": d_h}),
        () if n is None else _gate_cache(path, gate, B=B, d_m=d_m, h=h),
    )


def gate_network(path: str, rows, *, d_m: Size, G: Size, h: Size, bias: bool) -> Ledger:
    """Return the ledger of two linear layers with tanh between, and a softmax over h."""
    hidden, experts = {"G": G}, {"h": h}
    return ledger(
        linear(at(path, "fc1"), rows, {"d_m": d_m}, hidden, bias),
        # no counter counts tanh as an activation
        Entry(path, "elementwise", {**rows, **hidden}),
        linear(at(path, "fc2"), rows, hidden, experts, bias),
        Entry(path, "softmax", {**rows, **experts}),
    )


def _gate_cache(path, gate, *, B, d_m, h) -> Ledger:
    """Return the ledger of the cached gate; a running sum and its count are read and written by each step."""
    running = gate == "running"
    kinds = ("cache", "cache_write", "cache_read") if running else ("cache", "cache_read")
    sizes = ({"d_m": d_m}, {}) if running else ({"h": h},)
    return ledger(*(Entry(path, kind, {"B": B, **of}) for of in sizes for kind in kinds))
