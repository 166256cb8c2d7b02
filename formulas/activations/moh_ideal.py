"""Peak activation memory of the ideal form of mixture-of-head attention (see formulas/activations_moh.py).

Every row, a token's selected head, gathers the weights and the keys and values of its head, in chunks.
"""

from headcount.formulas.activations.head_router import HeadRouter
from headcount.formulas.activations.mha import Sizes
from headcount.formulas.activations.moa import chunks, expert_backward, expert_linear, routed_queries, scattered
from headcount.formulas.activations.schedule import INDEX_BYTES, Schedule, rows_gradient, weight_gradient


def forward(run: Schedule, n: Sizes, routing: HeadRouter, *, B, T, S, d_m, d_h, bias=False, **_) -> Schedule:
    """A forward pass without gradients."""
    k = routing.s + routing.r
    rows = B * T * k
    _queries(run, n, routing, k, bias)
    _core(run, n, rows, B, S, d_h)
    run.take(gated=rows * d_h)
    expert_linear(run, "out", rows, d_h, d_m)
    run.derive("out", y=n.out)
    if bias:
        run.derive("y", y_biased=n.out)
    return run


def training(run: Schedule, n: Sizes, routing: HeadRouter, *, B, T, S, d_m, h, d_h, g, bias=False, **_) -> Schedule:
    """A forward and a backward pass into the parameters."""
    k = routing.s + routing.r
    rows, weight, by_norm = B * T * k, d_m * h * d_h, routing.by_norm and routing.r > 0
    slots = _queries(run, n, routing, k, bias, training=True)
    _core(run, n, rows, B, S, d_h, training=True)
    run.take(gated=rows * d_h)
    expert_linear(run, "out", rows, d_h, d_m, saved=True)
    run.derive("out", y=n.out)
    if bias:
        run.derive("y", y_biased=n.out)
    run.drop("picked" if routing.by_norm else "q", "k", "v", *([] if routing.learns else ["heads"]))

    if bias:
        run.take(d_out_proj_bias=d_m)
    copied = k > 1 and B * T > 1
    if copied:
        run.take(d_out=rows * d_m)
    expert_backward(run, "out", rows, d_h, d_m, h, ["gated", *(["d_out"] if copied else [])], through=True)
    # gathered by head, kept as a matrix
    run.rename("d_out_proj_weight", "d_by_head")
    run.derive("d_by_head", d_out_proj_weight=weight)
    if routing.learns:
        run.take(d_products=rows * d_h)
    run.take(d_heads=rows * d_h)
    if routing.learns:
        run.derive("d_products", d_gates=rows)
        run.drop("heads")
    run.drop("d_gated", "gates")
    _core_backward(run, n, rows, S, d_h)
    if routing.by_norm:
        run.take(no_queries=n.rows, d_scaled=n.rows)
        run.drop("no_queries", "d_q", "indices", *([] if by_norm else ["q"]))
    else:
        if bias:
            run.take(zeros=h * d_h, d_q_proj_bias=h * d_h)
            run.drop("zeros")
        expert_backward(run, "q", rows, d_m, d_h, h, ["d_q", *(["slots"] if slots else [])], "indices")
        run.rename("d_q_proj_weight", "d_by_head")
        run.derive("d_by_head", d_q_proj_weight=weight)
    if routing.learns:
        routing.backward(run)
    if routing.by_norm:
        weight_gradient(run, "q_proj", "d_queries" if by_norm else "d_scaled", weight, bias * h * d_h)
    for name in ("v", "k"):
        gradient = rows_gradient(run, f"d_{name}", n.keys, g > 1 and S > 1)
        weight_gradient(run, f"{name}_proj", gradient, n.key_weight, n.key_bias)
    return run


def _queries(run: Schedule, n: Sizes, router: HeadRouter, k: int, bias: bool, *, training: bool = False) -> bool:
    """Keys, values and each row's query; whether tokens are written out once for each of their heads."""
    run.take(k=n.keys, v=n.keys)
    if not router.by_norm:
        router.forward(run, training=training)
        return routed_queries(run, router.tokens, router.d_m, k, router.d_h, bias, training=training)
    run.take(q=n.rows)
    router.forward(run, training=training)
    run.take(picked=router.tokens * k * router.d_h)
    if not training:
        run.drop("q")
    return False


def _core(run: Schedule, n: Sizes, rows: int, B: int, S: int, d_h: int, *, training: bool = False) -> None:
    """From each row's query to ``heads``."""
    if n.keys_copied:
        run.take(k_copy=n.keys, v_copy=n.keys)
    for name, size in (("batch", B), ("offsets", B), ("key_heads", rows), ("reads", rows)):
        run.take_bytes(name, size * INDEX_BYTES)
    run.drop("offsets", "key_heads")
    gone = ["batch", *(["k_copy", "v_copy"] if n.keys_copied else [])]
    run.take(scaled=rows * d_h)
    sizes = chunks(rows, S * d_h, run.element_bytes)
    for i, chunk in enumerate(sizes):
        run.take(**{f"keys_{i}": chunk * S * d_h, f"scores_{i}": chunk * S})
        if not training:
            run.drop(f"keys_{i}")
        if i:
            run.drop(f"scores_{i - 1}")
        run.take(**{f"weights_{i}": chunk * S})
        if i and not training:
            run.drop(f"weights_{i - 1}")
        run.take(**{f"values_{i}": chunk * S * d_h, f"part_{i}": chunk * d_h})
        if not training:
            run.drop(f"values_{i}")
        gone.append(f"part_{i}")
    run.take(heads=rows * d_h)
    last = len(sizes) - 1
    run.drop(*gone, f"scores_{last}", *([] if training else [f"weights_{last}", "scaled", "reads"]))


def _core_backward(run: Schedule, n: Sizes, rows: int, S: int, d_h: int) -> None:
    """From ``d_heads`` to ``d_v``, ``d_k`` and ``d_q``, chunk by chunk from the last."""
    sizes, parts = chunks(rows, S * d_h, run.element_bytes), []
    for i, chunk in reversed(list(enumerate(sizes))):
        first, last = i == len(sizes) - 1, i == 0
        run.take(d_values=chunk * S * d_h, d_weights=chunk * S)
        run.drop(f"values_{i}", *(["d_heads"] if last else []))
        _added(run, "v", "d_values", n.keys, first)
        run.take(d_scores=chunk * S)
        run.drop("d_weights", f"weights_{i}")
        run.take(d_keys=chunk * S * d_h, **{f"d_row_{i}": chunk * d_h})
        run.drop("d_scores", f"keys_{i}", *(["scaled"] if last else []))
        parts.append(f"d_row_{i}")
        _added(run, "k", "d_keys", n.keys, first, *(["reads"] if last else []))
    run.take(d_rows=rows * d_h)
    run.drop(*parts)
    run.derive("d_rows", d_q=rows * d_h)


def _added(run: Schedule, name: str, gradient: str, size: int, first: bool, *gone: str) -> None:
    """What a chunk's gathered keys or values give to the gradient of all; ``gone`` is not needed after."""
    scattered(run, name if first else f"{name}_chunk", gradient, size)
    run.drop(*gone)
    if first:
        return
    run.take(d_sum=size)
    run.drop(f"d_{name}", f"d_{name}_chunk")
    run.rename("d_sum", f"d_{name}")
