"""Feed-forward blocks: dense, and mixtures of K of E experts of inner width F for each token, with their own router.

y_t = sum_{i in G(x_t)} w_i,t f_i(x_t), f_i plain with biases, or gated (SwiGLU) without.
"""

from headcount.formulas.blocks import linear
from headcount.formulas.ledger import Entry, Ledger, Size, at, ledger


def layer(path: str, *, E: Size, K: Size, **sizes: Size) -> Ledger:
    """Return the ledger of a mixture of E experts, K of them per token; ``sizes`` of :func:`feed_forward`."""
    return feed_forward(path, E_ff=E, K_ff=K, **sizes)


def feed_forward(
    path: str,
    *,
    B: Size,
    T: Size,
    d_m: Size,
    F: Size,
    E_ff: Size = 0,
    K_ff: Size = 0,
    gated: bool = False,
    bias: bool = True,
    output_bias: bool = False,
) -> Ledger:
    """Return the ledger for B T tokens: d_m to F and back, with an activation; 2 B T d_m F MACs, 3 if ``gated``.

    With ``E_ff`` > 0 a mixture of E_ff experts, K_ff per token: B T d_m E_ff MACs, and K_ff times those of one. Plain
    experts have biases whatever ``bias`` is, and gated blocks have none. ``output_bias``: a bias after the sum over
    experts.
    """
    tokens, width, inner = {"B": B, "T": T}, {"d_m": d_m}, {"F": F}
    experts = {"E": E_ff} if E_ff != 0 else {}
    rows = {**tokens, "K": K_ff} if experts else tokens
    biased = not gated and (bias or bool(experts))
    names = ("gate_proj", "up_proj", "down_proj") if gated else ("fc1", "fc2")
    *inward, outward = (at(path, name) for name in names)
    return ledger(
        linear(at(path, "router.proj"), tokens, width, experts) if experts else (),
        [Entry(at(path, "router"), "softmax", of) for of in ({**tokens, **experts}, rows) if experts],
        *(linear(name, rows, width, inner, biased, experts=experts) for name in inward),
        Entry(path, "activation", {**rows, **inner}),
        [Entry(path, "elementwise", {**rows, **inner})] if gated else (),
        linear(outward, rows, inner, width, biased, experts=experts),
        [Entry(path, "elementwise", {**rows, **width})] if experts else (),
        [Entry(path, "expert_bias", {**tokens, **width}, weight=width)] if output_bias else (),
    )
