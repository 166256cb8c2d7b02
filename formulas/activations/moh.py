"""Peak activation memory of mixture-of-head attention as released (see schedule.py).

Every head is computed and multiplied by its gate, 0 where it is not selected; the ideal form is in moh_ideal.py.
"""

from headcount.formulas.activations.head_router import HeadRouter
from headcount.formulas.activations.mha import (
    Sizes,
    core_backward,
    core_forward,
    core_training,
    key_backward,
    out_backward,
    query_backward,
    sizes,
    value_backward,
)
from headcount.formulas.activations.schedule import Schedule


def forward(*, element_bytes: int, **letters) -> Schedule:
    """A forward pass without gradients."""
    run, (n, router, gates) = Schedule(element_bytes), parts(**letters, every=True)
    run.take(k=n.keys, v=n.keys, q=n.rows)
    router.forward(run)
    core_forward(run, n)
    _gated(run, n, gates)
    run.take(y=n.out)
    return run


def training(*, element_bytes: int, **letters) -> Schedule:
    """A forward and a backward pass into the parameters."""
    run, (n, router, gates) = Schedule(element_bytes), parts(**letters, every=True)
    run.take(k=n.keys, v=n.keys, q=n.rows)
    router.forward(run, training=True)
    saved = core_training(run, n)
    result = _gated(run, n, gates)
    run.take(y=n.out)
    # what no product needs again goes when the layer returns
    by_norm = router.by_norm and router.r > 0
    run.drop("gates", *(["k", "v"] if n.keys_copied else []), *([] if by_norm else ["q"]))
    if not router.learns:
        run.drop("indices", "heads")
    out_backward(run, n, result, "d_gated")
    if router.learns:
        run.take(d_products=n.rows)
    run.take(d_heads=n.rows)
    if router.learns:
        run.derive("d_products", d_all_gates=gates)
        run.drop("heads")
    run.drop("d_gated", "all_gates")
    if router.learns:
        run.take(d_gates=router.tokens * router.gated)
        run.drop("d_all_gates", "indices")
    core_backward(run, n, *saved)
    if router.learns:
        router.backward(run)
    query_backward(run, n, "d_queries" if by_norm else "d_scaled")
    value_backward(run, n)
    key_backward(run, n)
    return run


BY_NORM = {"linear": False, "query_norm": True}
RENORMALISED = {"printed": False, "released": True}


def parts(
    *, B, T, S, d_m, h, s, r, d_h, g, bias=False, router="linear", gates="released", every=False
) -> tuple[Sizes, HeadRouter, int]:
    """Attention of all heads, the router, and the number of gates, zeros included. KeyError for an unknown router or
    kind of gates."""
    attention = sizes(B=B, T=T, S=S, d_m=d_m, h=h, d_h=d_h, g=g, bias=bias)
    routing = HeadRouter(B * T, d_m, h, s, r, d_h, BY_NORM[router], RENORMALISED[gates], every)
    return attention, routing, B * T * h


def _gated(run: Schedule, n: Sizes, gates: int) -> str:
    """Each head times its gate; the name of what the output projection reads."""
    run.take(no_gates=gates)
    run.derive("no_gates", all_gates=gates)
    run.take(gated=n.rows)
    if not n.heads_copied:
        return "gated"
    run.derive("gated", side_by_side=n.rows)
    return "side_by_side"
