"""Mixture of attentive experts (arXiv 2005.06537): h experts, each all heads but one.

A gate on the mean token weighs the experts: g = Softmax(W2 tanh(W1 mean(x))). The mixture of experts is one
weight per head, so the heads themselves are computed once, as in multi-head attention.
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
    n: Size | None = None,
) -> Ledger:
    """Multi-head attention and B G (d_m + h) MACs of the gate, once per sequence.

    Keys and values of ``n`` of the S tokens are in a cache; None: there is none.
    """
    rows, width, hidden, experts = {"B": B}, {"d_m": d_m}, {"G": G}, {"h": h}
    return ledger(
        linear(at(path, "gate.fc1"), rows, width, hidden, bias),
        Entry(at(path, "gate"), "activation", {**rows, **hidden}),
        linear(at(path, "gate.fc2"), rows, hidden, experts, bias),
        Entry(at(path, "gate"), "softmax", {**rows, **experts}),
        multi_head_attention(path, B=B, T=T, S=S, d_m=d_m, h=h, d_h=d_h, g=h, bias=bias, n=n),
        Entry(path, "elementwise", {"B": B, "T": T, "h": h, "d_h": d_h}),
    )
