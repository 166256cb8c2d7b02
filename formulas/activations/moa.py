"""Peak activation memory of mixture of attention heads (see formulas/activations.py)."""

from headcount.formulas.activations.schedule import INDEX_BYTES, NoSchedule, Schedule, rows_gradient, weight_gradient

GATHERED_BYTES = 4 * 2**20
"""The reference gathers weights for as many rows at once as fill this."""


def forward(
    *,
    B: int,
    T: int,
    S: int,
    d_m: int,
    E: int,
    K: int,
    D: int,
    element_bytes: int,
    g: int = 1,
    bias: bool = False,
    output_bias: bool = False,
    gates: str = "printed",
    noisy: bool = False,
) -> Schedule:
    """A forward pass without gradients, where ``noisy`` gates add no noise."""
    _check(D, g, output_bias)
    run, rows, pairs = Schedule(element_bytes), B * T * K, B * K * T * S
    run.take(k=B * S * D, v=B * S * D)
    _router(run, B * T, E, K, gates)
    routed_queries(run, B * T, d_m, K, D, bias)
    run.take(scaled=rows * D, scores=pairs, weights=pairs, heads=rows * D)
    run.drop("scaled", "scores", "weights", "q")
    run.take(gated=rows * D)
    expert_linear(run, "out", rows, D, d_m)
    if bias:
        run.take(out_bias=rows * d_m, gated_bias=rows * d_m, out_biased=rows * d_m)
        run.drop("out_bias", "gated_bias", "out")
    run.drop("gated")
    run.take(y=B * T * d_m)
    return run


def training(
    *,
    B: int,
    T: int,
    S: int,
    d_m: int,
    E: int,
    K: int,
    D: int,
    element_bytes: int,
    g: int = 1,
    bias: bool = False,
    output_bias: bool = False,
    gates: str = "printed",
    noisy: bool = False,
) -> Schedule:
    """A forward and a backward pass into the parameters."""
    _check(D, g, output_bias)
    run, rows, pairs = Schedule(element_bytes), B * T * K, B * K * T * S
    run.take(k=B * S * D, v=B * S * D)
    _router(run, B * T, E, K, gates, noisy=noisy, training=True)
    slots = routed_queries(run, B * T, d_m, K, D, bias, training=True)
    run.take(scaled=rows * D, scores=pairs, weights=pairs, heads=rows * D)
    run.drop("scores", "q")
    run.take(gated=rows * D)
    expert_linear(run, "out", rows, D, d_m, saved=True)
    if bias:
        run.take(out_bias=rows * d_m, gated_bias=rows * d_m, out_biased=rows * d_m)
        run.drop("gated_bias", "out")
    run.derive("out_biased" if bias else "out", y=B * T * d_m)

    if bias:
        run.take(d_gates_columns=rows * d_m, d_gated_bias=rows * d_m, d_gates_of_bias=rows)
        run.drop("d_gates_columns", "out_bias")
        scattered(run, "out_proj_bias", "d_gated_bias", E * d_m)
    if slots:
        run.take(d_out=rows * d_m)
    expert_backward(run, "out", rows, D, d_m, E, ["gated", *(["d_out"] if slots else [])], through=True)
    run.take(d_heads=rows * D, d_gates_rows=rows * D, d_gates=rows)
    run.drop("d_gated", "d_gates_rows", "heads")
    if bias:
        run.take(d_all_gates=rows)
        run.drop("d_gates", "d_gates_of_bias")
        run.rename("d_all_gates", "d_gates")
    run.take(d_v=B * S * D, d_weights=pairs)
    run.drop("d_heads", "v")
    run.take(d_scores=pairs)
    run.drop("d_weights", "weights")
    run.take(d_k=B * S * D, d_q=rows * D)
    run.drop("d_scores", "k", "scaled")
    run.derive("d_q", d_scaled=rows * D)
    if bias:
        run.take(zeros=E * D, d_q_proj_bias=E * D)
        run.drop("zeros")
    expert_backward(run, "q", rows, d_m, D, E, ["d_scaled", *(["slots"] if slots else [])])
    _router_backward(run, B * T, d_m, E, K, gates, noisy)
    weight_gradient(run, "v_proj", "d_v", d_m * D, bias * D)
    weight_gradient(run, "k_proj", rows_gradient(run, "d_k", B * S * D, B > 1 and S > 1), d_m * D, bias * D)
    return run


def chunks(rows: int, weights: int, element_bytes: int) -> list[int]:
    """How many rows go together, chunk by chunk, where each gathers a matrix of ``weights`` elements."""
    most = max(1, GATHERED_BYTES // (weights * element_bytes))
    full, rest = divmod(rows, most)
    return [most] * full + [rest] * (rest > 0)


def _check(D: int, g: int, output_bias: bool) -> None:
    if g > 1 or output_bias:
        raise NoSchedule("no schedule for experts of several heads or with a bias after their sum")
    if D == 1:
        raise NoSchedule("no schedule for experts of width 1, which make other reshapes copy")


def _router(
    run: Schedule, tokens: int, E: int, K: int, gates: str, *, noisy: bool = False, training: bool = False
) -> None:
    run.take(logits=tokens * E)
    if noisy:
        run.take(noise=tokens * E, deviation_logits=tokens * E, deviation=tokens * E)
        run.derive("deviation", scaled_noise=tokens * E)
        run.take(noisy_logits=tokens * E)
        run.drop("scaled_noise", "logits")
    run.take(probs=tokens * E, top=tokens * K)
    run.take_bytes("indices", tokens * K * INDEX_BYTES)
    if gates == "selected":
        run.derive("top", gates=tokens * K)
    elif gates == "printed":
        run.take(denominator=tokens)
        run.derive("top", gates=tokens * K)
        if not training:
            run.drop("denominator")


def biased(run: Schedule, size: int) -> None:
    """``q`` with the gathered biases of its rows' experts."""
    run.take(q_bias=size, q_biased=size)
    run.drop("q", "q_bias")
    run.rename("q_biased", "q")


def routed_queries(run: Schedule, tokens: int, d_m: int, K: int, D: int, bias: bool, *, training: bool = False) -> bool:
    """``q`` of every row; whether a token's K equal slots are written out: one slot or one token needs it not."""
    rows, copied = tokens * K, K > 1 and tokens > 1
    if copied:
        run.take(slots=rows * d_m)
    expert_linear(run, "q", rows, d_m, D)
    if copied and not training:
        run.drop("slots")
    if bias:
        biased(run, rows * D)
    return copied


def expert_linear(run: Schedule, name: str, rows: int, fan_in: int, fan_out: int, *, saved: bool = False) -> None:
    """Products with gathered matrices, chunk by chunk; ``saved`` ones stay for the backward."""
    parts = []
    for i, chunk in enumerate(chunks(rows, fan_in * fan_out, run.element_bytes)):
        run.take(**{f"{name}_matrices_{i}": chunk * fan_in * fan_out, f"{name}_part_{i}": chunk * fan_out})
        parts.append(f"{name}_part_{i}")
        if not saved:
            run.drop(f"{name}_matrices_{i}")
    run.take(**{name: rows * fan_out})
    run.drop(*parts)


def expert_backward(
    run: Schedule,
    name: str,
    rows: int,
    fan_in: int,
    fan_out: int,
    E: int,
    last: list[str],
    *gone: str,
    through: bool = False,
) -> None:
    """The gradients of gathered matrices, added up from the last chunk to the first, which needs ``last``.

    ``gone`` is not needed after it; ``through`` to the rows, for which the matrices were saved: ``d_gated``.
    """
    parts, weight = [], E * fan_in * fan_out
    sizes = chunks(rows, fan_in * fan_out, run.element_bytes)
    for i, chunk in reversed(list(enumerate(sizes))):
        run.take(d_matrices=chunk * fan_in * fan_out)
        if through:
            run.take(**{f"d_part_{i}": chunk * fan_in})
            parts.append(f"d_part_{i}")
        run.drop(*(last if i == 0 else []), *([f"{name}_matrices_{i}"] if through else []))
        scattered(run, f"{name}_proj_chunk_{i}", "d_matrices", weight)
        run.drop(*(gone if i == 0 else ()))
        if i < len(sizes) - 1:
            run.take(d_sum=weight)
            run.drop(f"d_{name}_proj_weight", f"d_{name}_proj_chunk_{i}")
            run.rename("d_sum", f"d_{name}_proj_weight")
        else:
            run.rename(f"d_{name}_proj_chunk_{i}", f"d_{name}_proj_weight")
    if through:
        run.take(d_gated=rows * fan_in)
        run.drop(*parts)


def scattered(run: Schedule, name: str, gradient: str, size: int) -> None:
    """The gradient of a parameter from that of what was gathered of it."""
    run.take(zeros=size, **{f"d_{name}": size})
    run.drop("zeros", gradient)


def _router_backward(run: Schedule, tokens: int, d_m: int, E: int, K: int, gates: str, noisy: bool) -> None:
    divided = gates != "released"
    if divided:
        run.derive("d_gates", d_top=tokens * K)
        # a softmax keeps its result, which is recorded anyway
        run.drop(*(["denominator"] if gates == "printed" else []))
    run.take(no_probs=tokens * E, d_probs=tokens * E)
    run.drop("no_probs", "d_top" if divided else "d_gates")
    if gates == "selected":
        # the K highest logits, not probabilities, are what is weighed
        run.rename("d_probs", "d_logits")
    else:
        run.derive("d_probs", d_logits=tokens * E)
    if noisy:
        run.take(d_deviation=tokens * E)
        run.drop("noise")
        run.derive("d_deviation", d_deviation_logits=tokens * E)
        run.drop("deviation_logits")
        weight_gradient(run, "router_noise_proj", "d_deviation_logits", E * d_m)
    weight_gradient(run, "router_proj", "d_logits", E * d_m)
