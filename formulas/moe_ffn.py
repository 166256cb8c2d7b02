"""Mixture feed-forward block: K of E experts of inner width F for each token, with its own router.

y_t = sum_{i in G(x_t)} w_i,t f_i(x_t), f_i plain with biases, or gated (SwiGLU) without.
"""

from headcount.formulas.blocks import linear
from headcount.formulas.ledger import Entry, Ledger, Size, at, ledger


def layer(
    path: str,
    *,
    B: Size,
    T: Size,
    d_m: Size,
    F: Size,
    E: Size,
    K: Size,
    gated: bool = False,
    output_bias: bool = False,
) -> Ledger:
    """Return the ledger for B T tokens; ``output_bias``: a bias after the sum over experts.

    MACs: B T d_m E + 2 B T K d_m F, or 3 B T K d_m F if ``gated``.
    """
    tokens, width, inner, experts = {"B": B, "T": T}, {"d_m": d_m}, {"F": F}, {"E": E}
    routed = {**tokens, "K": K}
    names = ("gate_proj", "up_proj", "down_proj") if gated else ("fc1", "fc2")
    *inward, outward = (at(path, name) for name in names)
    return ledger(
        linear(at(path, "router.proj"), tokens, width, experts),
        Entry(at(path, "router"), "softmax", {**tokens, **experts}),
        Entry(at(path, "router"), "softmax", routed),
        *(linear(name, routed, width, inner, bias=not gated, experts=experts) for name in inward),
        Entry(path, "activation", {**routed, **inner}),
        [Entry(path, "elementwise", {**routed, **inner})] if gated else (),
        linear(outward, routed, inner, width, bias=not gated, experts=experts),
        Entry(path, "elementwise", {**routed, **width}),
        [Entry(path, "expert_bias", {**tokens, **width}, weight=width)] if output_bias else (),
    )
