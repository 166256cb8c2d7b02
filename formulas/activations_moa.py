"""Peak activation memory of mixture of attention heads (see formulas/activations.py)."""

from formulas.activations import INDEX_BYTES, NoSchedule, Schedule, rows_gradient, weight_gradient

GATHERED_BYTES = 16 * 2**20
"""The reference gathers weights for as many rows at once as fill this."""


def chunks(rows: int, weights: int, element_bytes: int) -> list[int]:
    """How many rows go together, chunk by chunk, where each gathers a matrix of ``weights`` elements."""
    most = max(1, GATHERED_BYTES // (weights * element_bytes))
    return [min(most, rows - start) for start in range(0, rows, most)]


def _check_width(D: int) -> None:
    if D == 1:
        raise NoSchedule("experts of width 1 make other reshapes copy")


def slots_copied(B: int, T: int, K: int) -> bool:
    """Whether a token's K equal slots are written out: neither one slot nor one token needs it."""
    return K > 1 and B * T > 1


def _router(run: Schedule, B: int, T: int, E: int, K: int, renormalise: bool, training: bool) -> None:
    run.take(logits=B * T * E, probs=B * T * E, top=B * T * K)
    run.take_bytes("indices", B * T * K * INDEX_BYTES)
    if renormalise:
        run.take(denominator=B * T)
        run.derive("top", gates=B * T * K)
        if not training:
            run.drop("denominator")


def _expert_linear(run: Schedule, name: str, rows: int, fan_in: int, fan_out: int, bias: bool, saved: bool) -> None:
    """Products with gathered matrices, chunk by chunk; ``saved`` ones stay for the backward."""
    parts = []
    for i, chunk in enumerate(chunks(rows, fan_in * fan_out, run.element_bytes)):
        run.take(**{f"{name}_matrices_{i}": chunk * fan_in * fan_out, f"{name}_part_{i}": chunk * fan_out})
        parts.append(f"{name}_part_{i}")
        if not saved:
            run.drop(f"{name}_matrices_{i}")
    run.take(**{name: rows * fan_out})
    run.drop(*parts)


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
    bias: bool = False,
    renormalise: bool = True,
    noisy: bool = False,
) -> Schedule:
    """A forward pass without gradients, where ``noisy`` gates add no noise."""
    _check_width(D)
    run, rows, pairs = Schedule(element_bytes), B * T * K, B * K * T * S
    run.take(k=B * S * D, v=B * S * D)
    _router(run, B, T, E, K, renormalise, False)
    if slots_copied(B, T, K):
        run.take(slots=rows * d_m)
    _expert_linear(run, "q", rows, d_m, D, bias, False)
    if bias:
        run.take(q_bias=rows * D, q_biased=rows * D)
    if slots_copied(B, T, K):
        run.drop("slots")
    if bias:
        run.drop("q", "q_bias")
    run.take(scaled=rows * D, scores=pairs, weights=pairs, heads=rows * D)
    run.drop("scaled", "scores", "weights", "q_biased" if bias else "q")
    run.take(gated=rows * D)
    _expert_linear(run, "out", rows, D, d_m, bias, False)
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
    bias: bool = False,
    renormalise: bool = True,
    noisy: bool = False,
) -> Schedule:
    """A forward and a backward pass into the parameters.

    NoSchedule for biases and noise, and where the matrices are gathered in several chunks, whose gradients autograd
    adds up as it goes.
    """
    _check_width(D)
    if bias:
        raise NoSchedule("no schedule of training experts with biases")
    if noisy:
        raise NoSchedule("no schedule of training noisy gates")
    rows, pairs = B * T * K, B * K * T * S
    if len(chunks(rows, d_m * D, element_bytes)) > 1:
        raise NoSchedule("gathered matrices of more than 16 MiB come in chunks, of whose training there is no schedule")
    run = Schedule(element_bytes)
    run.take(k=B * S * D, v=B * S * D)
    _router(run, B, T, E, K, renormalise, True)
    if slots_copied(B, T, K):
        run.take(slots=rows * d_m)
    _expert_linear(run, "q", rows, d_m, D, False, False)
    run.take(scaled=rows * D, scores=pairs, weights=pairs, heads=rows * D)
    run.drop("scores", "q")
    run.take(gated=rows * D)
    _expert_linear(run, "out", rows, D, d_m, False, True)
    run.derive("out", y=B * T * d_m)
    _backward(run, B, T, S, d_m, E, K, D, renormalise)
    return run


def _backward(run: Schedule, B, T, S, d_m, E, K, D, renormalise) -> None:
    rows, pairs, matrices = B * T * K, B * K * T * S, E * d_m * D
    if slots_copied(B, T, K):
        run.take(d_out=rows * d_m)
    run.take(d_out_matrices=rows * D * d_m, d_part=rows * D)
    run.drop(*(["d_out"] if slots_copied(B, T, K) else []), "out_matrices_0", "gated")
    run.take(zeros=matrices, d_out_proj_weight=matrices)
    run.drop("zeros", "d_out_matrices")
    run.derive("d_part", d_gated=rows * D)
    run.take(d_heads=rows * D, d_gates_rows=rows * D, d_gates=rows)
    run.drop("d_gated", "d_gates_rows", "heads")
    run.take(d_v=B * S * D, d_weights=pairs)
    run.drop("d_heads", "v")
    run.take(d_scores=pairs)
    run.drop("d_weights", "weights")
    run.take(d_k=B * S * D, d_q=rows * D)
    run.drop("d_scores", "k", "scaled")
    run.derive("d_q", d_scaled=rows * D)
    run.take(d_q_matrices=rows * d_m * D)
    run.drop("d_scaled", *(["slots"] if slots_copied(B, T, K) else []))
    run.take(zeros=matrices, d_q_proj_weight=matrices)
    run.drop("zeros", "d_q_matrices")
    if renormalise:
        run.derive("d_gates", d_top=rows)
        run.drop("denominator")
    run.take(no_probs=B * T * E, d_probs=B * T * E)
    run.drop("no_probs", "d_top" if renormalise else "d_gates")
    run.derive("d_probs", d_logits=B * T * E)
    weight_gradient(run, "router", "d_logits", E * d_m, 0)
    weight_gradient(run, "v_proj", "d_v", d_m * D, 0)
    weight_gradient(run, "k_proj", rows_gradient(run, "d_k", B * S * D, B > 1 and S > 1), d_m * D, 0)
