"""Peak activation memory of multi-head, grouped-query and multi-query attention (see formulas/activations.py)."""

from dataclasses import dataclass

from headcount.formulas.activations.schedule import NoSchedule, Schedule, rows_gradient, weight_gradient


@dataclass(frozen=True)
class Sizes:
    """Elements of the tensors of one call, and which reshapes copy."""

    rows: int
    keys: int
    pairs: int
    out: int
    query_weight: int
    key_weight: int
    query_bias: int
    key_bias: int
    out_bias: int
    grouped: bool
    """Rows of several query heads are put together for their key/value head."""
    heads_copied: bool
    """Heads stand apart in the core's result, and are put side by side for the output projection."""
    queries_copied: bool
    keys_copied: bool
    key_rows_copied: bool
    value_rows_copied: bool


def sizes(*, B: int, T: int, S: int, d_m: int, h: int, d_h: int, g: int, bias: bool) -> Sizes:
    """The tensors of a layer with h heads of width d_h and g key/value heads. NoSchedule for d_h = 1."""
    if d_h == 1:
        raise NoSchedule("no schedule for heads of width 1, which make other reshapes copy")
    several = g > 1 and T > 1
    return Sizes(
        rows=B * T * h * d_h,
        keys=B * S * g * d_h,
        pairs=B * h * T * S,
        out=B * T * d_m,
        query_weight=d_m * h * d_h,
        key_weight=d_m * g * d_h,
        query_bias=bias * h * d_h,
        key_bias=bias * g * d_h,
        out_bias=bias * d_m,
        grouped=several and h > g,
        heads_copied=several and h == g,
        queries_copied=several and h == g and B > 1,
        keys_copied=B > 1 and g > 1 and S > 1,
        key_rows_copied=B > 1 and S > 1,
        value_rows_copied=S > 1 and g > 1,
    )


def forward(*, element_bytes: int, **letters) -> Schedule:
    """A forward pass without gradients."""
    run, n = Schedule(element_bytes), sizes(**letters)
    run.take(k=n.keys, v=n.keys, q=n.rows)
    core_forward(run, n)
    if n.heads_copied:
        run.take(side_by_side=n.rows)
    run.take(y=n.out)
    return run


def training(*, element_bytes: int, **letters) -> Schedule:
    """A forward and a backward pass into the parameters."""
    run, n = Schedule(element_bytes), sizes(**letters)
    run.take(k=n.keys, v=n.keys, q=n.rows)
    saved = core_training(run, n)
    result = "heads"
    if n.heads_copied:
        run.take(side_by_side=n.rows)
        result = "side_by_side"
    run.take(y=n.out)
    # what no product needs again goes when the layer returns
    run.drop("q")
    if n.heads_copied:
        run.drop("heads")
    if n.keys_copied:
        run.drop("k", "v")
    out_backward(run, n, result, "d_heads")
    core_backward(run, n, *saved)
    query_backward(run, n, "d_scaled")
    value_backward(run, n)
    key_backward(run, n)
    return run


def core_forward(run: Schedule, n: Sizes) -> None:
    """From ``q``, ``k`` and ``v`` to ``heads``; nothing else stays."""
    run.take(scaled=n.rows)
    if n.grouped:
        run.derive("scaled", grouped=n.rows)
    temporaries = []
    for name, size, copied in (("q_copy", n.rows, n.queries_copied), ("k_copy", n.keys, n.keys_copied)):
        if copied:
            run.take(**{name: size})
            temporaries.append(name)
    run.take(scores=n.pairs)
    run.drop(*temporaries)
    run.take(weights=n.pairs)
    if n.keys_copied:
        run.take(v_copy=n.keys)
    run.take(heads=n.rows)
    if n.keys_copied:
        run.drop("v_copy")
    if n.grouped:
        _side_by_side(run, n)
    run.drop("grouped" if n.grouped else "scaled", "scores", "weights")


def core_training(run: Schedule, n: Sizes) -> tuple[str, str, str]:
    """The same with what the backward needs kept: its queries, keys and values by name, beside ``weights``."""
    query, key, value = "scaled", "k", "v"
    run.take(scaled=n.rows)
    if n.grouped:
        run.derive("scaled", grouped=n.rows)
        query = "grouped"
    if n.queries_copied:
        run.take(q_copy=n.rows)
    if n.keys_copied:
        run.take(k_copy=n.keys)
        key = "k_copy"
    run.take(scores=n.pairs, weights=n.pairs)
    if n.keys_copied:
        run.take(v_copy=n.keys)
        value = "v_copy"
    run.take(heads=n.rows)
    if n.grouped:
        _side_by_side(run, n)
    run.drop("scores")
    if n.queries_copied:
        run.drop("scaled")
        query = "q_copy"
    return query, key, value


def _side_by_side(run: Schedule, n: Sizes) -> None:
    run.derive("heads", ungrouped=n.rows)
    run.rename("ungrouped", "heads")


def out_backward(run: Schedule, n: Sizes, result: str, gradient: str) -> None:
    """From the gradient of the output to ``gradient`` of ``result``, which the output projection read."""
    if n.out_bias:
        run.take(**{gradient: n.rows})
        weight_gradient(run, "out_proj", result, n.query_weight, n.out_bias)
    else:
        # without a bias the layer is a plain product, whose gradients come in another order
        run.take(d_out_proj_weight=n.query_weight, **{gradient: n.rows})
        run.drop(result)


def core_backward(run: Schedule, n: Sizes, query: str, key: str, value: str) -> None:
    """From ``d_heads`` to ``d_v``, ``d_k`` and ``d_scaled``, the gradient of ``q``."""
    heads = rows_gradient(run, "d_heads", n.rows, n.grouped or n.queries_copied)
    run.take(d_v=n.keys, d_weights=n.pairs)
    run.drop(heads, value)
    run.take(d_scores=n.pairs)
    run.drop("d_weights", "weights")
    run.take(d_k=n.keys, d_q=n.rows)
    run.drop("d_scores", query, key)
    rows = rows_gradient(run, "d_q", n.rows, n.grouped)
    run.derive(rows, d_scaled=n.rows)


def value_backward(run: Schedule, n: Sizes) -> None:
    """The gradients of the value projection."""
    weight_gradient(run, "v_proj", rows_gradient(run, "d_v", n.keys, n.value_rows_copied), n.key_weight, n.key_bias)


def key_backward(run: Schedule, n: Sizes) -> None:
    """The gradients of the key projection."""
    weight_gradient(run, "k_proj", rows_gradient(run, "d_k", n.keys, n.key_rows_copied), n.key_weight, n.key_bias)


def query_backward(run: Schedule, n: Sizes, output: str) -> None:
    """The gradients of the query projection from that of its ``output``."""
    rows = rows_gradient(run, output, n.rows, n.heads_copied)
    weight_gradient(run, "q_proj", rows, n.query_weight, n.query_bias)
