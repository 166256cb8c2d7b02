"""The Triton kernels as operators of torch: ``torch.ops.headcount.*``, with shapes, gradients and exact MACs.

Importable without triton: on meta and under a counter an operator is its shapes, and only one that runs imports the
kernels. An operator's attribute ``contractions`` takes its arguments, tensors or anything else with a ``shape``, and
gives its products as (kind, sizes, positions of the operands). Attention has no gradient: where one is needed, layers
run torch's fused core.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor

from headcount.models.configs.moa import Gates
from headcount.models.kernels.triton_configs import MOST_PARTS_OF_A_PRODUCT, splits_of_keys
from headcount.models.kernels.triton_launch import cdiv, configure, contiguous, pad, start, start_attention, with_rows


def _operator(name: str, shapes: Callable, contractions: Callable, gradient: tuple[Callable, Callable] | None = None):
    """Register the decorated function as operator ``headcount::name``; ``gradient`` is (setup_context, backward)."""

    def make(function: Callable):
        operator = torch.library.custom_op(f"headcount::{name}", mutates_args=())(function)
        operator.register_fake(shapes)
        if gradient:
            operator.register_autograd(gradient[1], setup_context=gradient[0])
        getattr(torch.ops.headcount, name).contractions = contractions
        return operator

    return make


# Routing


def _route_shapes(x, w, top_k, gates):
    num_tokens, num_experts = x.shape[0], w.shape[0]
    return (
        x.new_empty(num_tokens, top_k, dtype=torch.float32),
        x.new_empty(num_tokens, top_k, dtype=torch.int32),
        x.new_empty(num_tokens * top_k, dtype=torch.int32),
        x.new_empty(num_experts, dtype=torch.int32),
        x.new_empty(num_tokens, num_experts, dtype=torch.float32),
    )


def _route_products(x, w, *rest):
    return [("linear", {"m": x.shape[0], "i": x.shape[1], "j": w.shape[0]}, (0, 1))]


def _save_routing(ctx, inputs, output):
    x, w, ctx.top_k, ctx.gates = inputs
    # gradients that nothing needs are None, not zeros
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, w, output[1], output[4])


def _route_backward(ctx, grad_gates, grad_experts, grad_order, grad_ends, grad_logits):
    x, w, experts, logits = ctx.saved_tensors
    grad = grad_logits
    if grad_gates is not None:
        through_gates = _gates_backward(grad_gates, experts, logits, ctx.gates)
        grad = through_gates if grad is None else grad + through_gates
    grad = grad.to(x.dtype)
    return grad @ w if ctx.needs_input_grad[0] else None, grad.t() @ x, None, None


def _gates_backward(grad, experts, logits, gates):
    """Return the gradient of the logits, given that of the gates of ``experts``."""
    probs, chosen = torch.softmax(logits, -1), experts.long()
    if gates == Gates.SELECTED:
        # a softmax of the selected logits, 0 at the others
        probs = torch.zeros_like(logits).scatter(-1, chosen, torch.softmax(logits.gather(-1, chosen), -1))
    elif gates == Gates.PRINTED:
        # the sum of the selected probabilities is a constant (Eq. 9)
        grad = grad / probs.gather(-1, chosen).sum(-1, keepdim=True)
    grad = torch.zeros_like(logits).scatter(-1, chosen, grad)
    return torch._softmax_backward_data(grad, probs, -1, logits.dtype)


@_operator("route", _route_shapes, _route_products, (_save_routing, _route_backward))
def route(x: Tensor, w: Tensor, top_k: int, gates: str) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return softmax(x W_g^T) of tokens (N, d) and W_g (E, d) at the K highest logits of each token (Eq. 2, 7-9).

    Gates (N, K), float32, of the kind ``gates`` by falling logit, and experts (N, K), the lower one among equals; row
    ids n*K + k in the order of their experts and where each expert's rows end; logits (N, E).
    """
    (num_tokens, d_model), num_experts = x.shape, w.shape[0]
    x, w = x.contiguous(), w.contiguous()
    weights, experts, order, ends, logits = _route_shapes(x, w, top_k, gates)
    _start_router(
        "route", configure("route", E=num_experts), (x, w, weights, experts), experts[None], order, ends,
        (logits, num_tokens, d_model, x.stride(0)), E=num_experts, RENORMALISE=gates != Gates.RELEASED,
    )  # fmt: skip
    return weights, experts, order, ends, logits


def _start_router(name, launch, before, experts, order, ends, after, **constants):
    """Start a router, and order the rows of each expert of a group of tokens, unless ``order`` is empty.

    The kernel writes ``experts`` (groups, n, K); its other arguments come ``before`` and ``after`` the places of rows.
    """
    (groups, group_len, top_k), num_experts, block = experts.shape, constants["E"], launch.blocks["BM"]
    per_group = cdiv(group_len, block)
    num_blocks = groups * per_group
    ranks, counts = torch.empty_like(experts), experts.new_empty(num_blocks, num_experts)
    alone = per_group == 1 and order.numel() > 0
    places = (order, ends) if alone else (ranks, counts)
    start(name, (num_blocks,), launch, *before, *places, *after, ALONE=alone, K=top_k, **constants)
    if order.numel() and not alone:
        start(
            "place", (num_blocks,), configure("place"), experts, ranks, counts, order, ends,
            num_blocks, group_len, per_group, E=num_experts, K=top_k, BM=block,
        )  # fmt: skip


def _head_shapes(x, num_shared, num_routed, top_k):
    batch_size, length = x.shape[:2]
    # heads of one token are decoded, in any order
    ordered = batch_size if length > 1 else 0
    return (
        x.new_empty(batch_size, length, top_k, dtype=torch.int32),
        x.new_empty(batch_size, length, num_shared + top_k, dtype=torch.float32),
        x.new_empty(ordered * length * top_k, dtype=torch.int32),
        x.new_empty(ordered * num_routed, dtype=torch.int32),
    )


def _select_heads(name, operands, results, rest, num_shared, num_routed, **constants):
    """Start a router of heads, which writes ``results``, and order the rows of each (sequence, routed head)."""
    heads, gates, order, ends = results
    length, launch = heads.shape[1], configure(name)
    after = length, cdiv(length, launch.blocks["BM"]), *rest
    before = *operands, heads, gates
    _start_router(name, launch, before, heads, order, ends, after, S=num_shared, E=num_routed, **constants)


def _head_route_shapes(x, w, shared, groups, num_shared, top_k, released):
    logits = x.new_empty(*x.shape[:2], w.shape[0], dtype=torch.float32)
    return *_head_shapes(x, num_shared, w.shape[0], top_k), logits


def _head_route_products(x, *matrices_and_rest):
    matrices = enumerate(matrices_and_rest[:3], 1)
    tokens, width = prod(x.shape[:2]), x.shape[2]
    return [("linear", {"m": tokens, "i": width, "j": w.shape[0]}, (0, i)) for i, w in matrices if w is not None]


@_operator("head_route", _head_route_shapes, _head_route_products)
def head_route(
    x: Tensor, w: Tensor, shared: Tensor | None, groups: Tensor | None,
    num_shared: int, top_k: int, released: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Route tokens (B, T, d) by MoH's matrices W_r (E, d), W_s (s, d) and W_h (2, d), where it has them (Eq. 5-6).

    The K selected routed heads (B, T, K) by falling logit, numbered from 0; gates (B, T, s + K), shared heads first;
    row ids n*K + k by (sequence, head) and where the rows of each end, both empty where T = 1; logits (B, T, E).
    """
    x, w, shared, groups = contiguous(x, w, shared, groups)
    *results, logits = _head_route_shapes(x, w, shared, groups, num_shared, top_k, released)
    columns = sum(len(matrix) for matrix in (w, shared, groups) if matrix is not None)
    _select_heads(
        "head_route", (x, w, shared, groups), results, (x.shape[2], x.stride(1), logits), num_shared, w.shape[0],
        C=columns, RELEASED=released,
    )  # fmt: skip
    return *results, logits


def _norm_route_shapes(q, num_shared, top_k):
    return _head_shapes(q, num_shared, q.shape[2] - num_shared, top_k)


@_operator("norm_route", _norm_route_shapes, lambda *args: [])
def norm_route(q: Tensor, num_shared: int, top_k: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Select the K routed heads with the longest queries of (B, T, h, D); gates of 1, and results as head_route's."""
    q, results = q.contiguous(), _norm_route_shapes(q, num_shared, top_k)
    num_routed = q.shape[2] - num_shared
    squares = q.new_empty(*q.shape[:2], num_routed, dtype=torch.float32)
    _select_heads("norm_route", (q,), results, (squares,), num_shared, num_routed, D=q.shape[3])
    return results


# Products with experts


def _expert(
    a: Tensor,
    w: Tensor,
    bias: Tensor | None,
    gates: Tensor | None,
    order: Tensor,
    ends: Tensor,
    rows_per_a: int,
    other: Tensor | None = None,
    top: Tensor | None = None,
    norm: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Multiply each row of ``a`` (N*K / rows_per_a, in) by its expert's matrix of ``w`` (E, in, out): (N*K, out).

    Also return the product of each row, without its gate, and the row of ``other`` (N*K, out): (N*K), or (0). With
    ``top`` and ``norm``, those of _decode_parts, a row of ``a`` has parts (splits * in).
    """
    num_experts, in_features, out_features = w.shape
    a, bias, gates, order, ends, other = contiguous(a, bias, gates, order, ends, other)
    rows = order.numel()
    launch = configure("expert", rows=rows // num_experts, i=in_features, o=out_features, plain=int(other is None))
    c = w.new_empty(rows, out_features)
    tiles = min(rows, cdiv(rows, launch.blocks["BM"]) + num_experts - 1)
    blocks = cdiv(out_features, launch.blocks["BN"])
    dots = a.new_empty(0 if other is None else rows, blocks, dtype=torch.float32)
    start(
        "expert", (blocks * tiles,), launch,
        a, w, bias, gates, other, top, norm, dots, c, order, ends,
        in_features, out_features, a.stride(0), *w.stride(),
        SPLITS=a.shape[1] // in_features, E=num_experts, ROWS_PER_A=rows_per_a,
    )  # fmt: skip
    # blocks are summed in order, so that equal inputs give equal bits
    return c, dots[:, 0] if other is None or blocks == 1 else dots.sum(1)


def _spread_shapes(x, w, bias, order, ends, top_k):
    return x.new_empty(order.shape[0], w.shape[2])


def _rows_products(x, w, bias_or_gates, order, *rest):
    return [("expert_linear", {"m": order.shape[0], "i": w.shape[1], "j": w.shape[2]}, (0, 1))]


def _save_rows(ctx, inputs, output):
    *tensors, ctx.top_k = inputs
    ctx.save_for_backward(*tensors)


def _spread_backward(ctx, grad):
    x, w, bias, order, ends = ctx.saved_tensors
    grad = grad.contiguous()
    dx = collect(grad, w.transpose(1, 2), None, order, ends, ctx.top_k) if ctx.needs_input_grad[0] else None
    wants_weight = ctx.needs_input_grad[1] or ctx.needs_input_grad[2]
    dw, db = weight_grad(x, grad, None, order, ends, bias is not None) if wants_weight else (None, None)
    return dx, dw, None if bias is None else db, None, None, None


@_operator("spread", _spread_shapes, _rows_products, (_save_rows, _spread_backward))
def spread(x: Tensor, w: Tensor, bias: Tensor | None, order: Tensor, ends: Tensor, top_k: int) -> Tensor:
    """Return x_n W_e + b_e as row (n, k), for the expert e of slot k of token n; (N, in) to (N*K, out)."""
    return _expert(x, w, bias, None, order, ends, top_k)[0]


def _collect_shapes(x, w, gates, order, ends, top_k):
    return x.new_empty(x.shape[0] // top_k, w.shape[2])


def _collect_backward(ctx, grad):
    x, w, gates, order, ends = ctx.saved_tensors
    grad = grad.contiguous()
    dw, _ = weight_grad(x, grad, gates, order, ends, False) if ctx.needs_input_grad[1] else (None, None)
    if gates is None:
        return spread(grad, w.transpose(1, 2), None, order, ends, ctx.top_k), dw, None, None, None, None
    dx, dgates = spread_gated(grad, w.transpose(1, 2), gates, order, ends, ctx.top_k, x)
    return dx, dw, dgates.view_as(gates).to(gates.dtype), None, None, None


def _spread_gated_shapes(grad, w, gates, order, *rest):
    return grad.new_empty(order.shape[0], w.shape[2]), grad.new_empty(order.shape[0], dtype=torch.float32)


@_operator("spread_gated", _spread_gated_shapes, _rows_products)
def spread_gated(
    grad: Tensor, w: Tensor, gates: Tensor, order: Tensor, ends: Tensor, top_k: int, x: Tensor
) -> tuple[Tensor, Tensor]:
    """Return g (grad_n W_e) as row (n, k), and the product of that row without g and x (N*K, out): the gradients of
    ``collect`` for its rows and its gates."""
    return _expert(grad, w, None, gates, order, ends, top_k, x)


@_operator("collect", _collect_shapes, _rows_products, (_save_rows, _collect_backward))
def collect(x: Tensor, w: Tensor, gates: Tensor | None, order: Tensor, ends: Tensor, top_k: int) -> Tensor:
    """Return for each token the sum over its K rows of g x W_e; (N*K, in) to (N, out)."""
    return _sum_slots(_expert(x, w, None, gates, order, ends, 1)[0], top_k)


def _sum_slots(rows: Tensor, top_k: int) -> Tensor:
    """Return the sums (N, out) over the K rows (N*K, out) of each token."""
    out, launch = rows.new_empty(len(rows) // top_k, rows.shape[1]), configure("slots")
    grid = tuple(cdiv(size, launch.blocks[block]) for size, block in zip(out.shape, ("BM", "BN"), strict=True))
    start("slots", grid, launch, rows, out, *out.shape, K=top_k)
    return out


def _weight_grad_shapes(a, g, gates, order, ends, biased):
    num_experts, out_features = ends.shape[0], g.shape[1]
    return a.new_empty(num_experts, a.shape[1], out_features), a.new_empty(num_experts, out_features if biased else 0)


def _weight_grad_products(a, g, gates, order, *rest):
    return [("expert_linear", {"m": order.shape[0], "i": a.shape[1], "j": g.shape[1]}, (0, 1))]


@_operator("weight_grad", _weight_grad_shapes, _weight_grad_products)
def weight_grad(
    a: Tensor, g: Tensor, gates: Tensor | None, order: Tensor, ends: Tensor, biased: bool
) -> tuple[Tensor, Tensor]:
    """Return dW_e = sum over the rows of e of gate a^T g, and db_e that of g if ``biased``; zeros where e has no row.

    ``a`` (…, in) and ``g`` (…, out) have one row for each row, or for each token: then each of its K rows reads it.
    """
    dw, db = _weight_grad_shapes(a, g, gates, order, ends, biased)
    a, g, gates, order, ends = contiguous(a, g, gates, order, ends)
    num_experts, in_features, out_features = dw.shape
    launch, rows = configure("weight_grad"), order.numel()
    grid = (cdiv(in_features, launch.blocks["BI"]), cdiv(out_features, launch.blocks["BO"]), num_experts)
    start(
        "weight_grad", grid, launch,
        a, g, gates, dw, db, order, ends, in_features, out_features, a.stride(0), g.stride(0),
        ROWS_PER_A=rows // len(a), ROWS_PER_G=rows // len(g), BIASED=biased,
    )  # fmt: skip
    return dw, db


# Products with all experts


def _gated_products(x, gates, w, *rest):
    return [("linear", {"m": x.shape[0], "i": w.shape[0], "j": w.shape[1]}, (0, 2))]


def _save_gated(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _gated_backward(ctx, grad):
    x, gates, w = ctx.saved_tensors
    dx, dgates, gated = gated_linear_grad(grad, gates, w, x)
    return dx, dgates.to(gates.dtype), gated.flatten(1).t() @ grad if ctx.needs_input_grad[2] else None


def _gated_grad_products(grad, gates, w, x):
    return [("linear", {"m": grad.shape[0], "i": w.shape[1], "j": w.shape[0]}, (0, 2))]


def _gated_grad_shapes(grad, gates, w, x):
    return torch.empty_like(x), torch.empty_like(gates, dtype=torch.float32), torch.empty_like(x)


@_operator("gated_linear_grad", _gated_grad_shapes, _gated_grad_products)
def gated_linear_grad(grad: Tensor, gates: Tensor, w: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of ``gated_linear`` for x and the gates, and x times the gates."""
    grad, gates, w, x = contiguous(grad, gates, w, x)
    num_tokens, top_k, head_dim = x.shape
    launch = configure("gated_grad", D=pad(head_dim))
    blocks = cdiv(head_dim, launch.blocks["BN"])
    dx, gated, dots = torch.empty_like(x), torch.empty_like(x), x.new_empty(*gates.shape, blocks, dtype=torch.float32)
    start(
        "gated_grad", (cdiv(num_tokens, launch.blocks["BM"]) * top_k * blocks,), launch,
        grad, w, x, gates, dx, dots, gated, num_tokens, w.shape[1], K=top_k, D=head_dim,
    )  # fmt: skip
    return dx, dots[..., 0] if blocks == 1 else dots.sum(-1), gated


@_operator(
    "gated_linear", lambda x, gates, w: x.new_empty(len(x), w.shape[1]), _gated_products, (_save_gated, _gated_backward)
)
def gated_linear(x: Tensor, gates: Tensor, w: Tensor) -> Tensor:
    """Return for each token the sum over its K slots of g x W_k; x (N, K, D), gates (N, K), w (K D, out)."""
    x, gates, w = contiguous(x, gates, w)
    (num_tokens, top_k, head_dim), width, launch = x.shape, w.shape[1], configure("gated")
    y = x.new_empty(num_tokens, width)
    programs = cdiv(num_tokens, launch.blocks["BM"]) * cdiv(width, launch.blocks["BN"])
    start("gated", (programs,), launch, x, gates, w, y, num_tokens, width, K=top_k, D=head_dim)
    return y


# Attention


def _attention_products(rows: int, q: Any, k: Any) -> list[tuple[str, dict[str, int], tuple[int, ...]]]:
    src_len, head_dim = k.shape[1], q.shape[-1]
    return [
        ("scores", {"m": rows, "i": head_dim, "j": src_len}, (0, 1)),
        ("values", {"m": rows, "i": src_len, "j": head_dim}, (2,)),
    ]


def _mqa_products(q, k, *rest):
    return _attention_products(prod(q.shape[:3]), q, k)


@_operator("mqa", lambda q, *rest: torch.empty_like(q), _mqa_products)
def mqa(q: Tensor, k: Tensor, v: Tensor, logits: Tensor, hidden: Tensor | None, causal: bool) -> Tensor:
    """Return softmax(Q K^T / sqrt(D)) V times softmax(logits) (B, T, K), for K query heads (B, T, K, D) over one
    key/value head (B, S, D).

    ``hidden`` (B, S) is True at keys to hide; ``causal`` hides keys after the query, the last T positions.
    """
    batch_size, tgt_len, top_k, head_dim = q.shape
    (q, hidden), logits = contiguous(q, hidden), with_rows(logits)
    out = torch.empty_like(q)
    launch = configure("mqa", D=pad(head_dim))
    start_attention(
        "mqa", cdiv(tgt_len * top_k, launch.blocks["BM"]) * batch_size, launch,
        q, k, v, logits, hidden, out, tgt_len * top_k, k.shape[1], logits.stride(0), K=top_k, CAUSAL=causal,
    )  # fmt: skip
    return out


def _ragged_products(q, k, v, own, heads, *rest):
    return _attention_products(prod(heads.shape), q, k)


@_operator("ragged", lambda q, *rest: torch.empty_like(q), _ragged_products)
def ragged(
    q: Tensor, k: Tensor, v: Tensor, own: Tensor | None, heads: Tensor, gates: Tensor, order: Tensor, ends: Tensor,
    hidden: Tensor | None, causal: bool,
) -> Tensor:  # fmt: skip
    """Attend from (B, T, h, D) to (B, S, g, D) for the routed heads (B, T, K) of each token, times their gates.

    Heads, gates, order and ends are those of head_route. ``own`` (B, T, s, D) are the outputs of the shared heads, to
    which their gates are applied; None without any. Zeros at the other heads, which are not computed; masks as mqa's.
    """
    batch_size, tgt_len, num_heads, head_dim = q.shape
    q, own, heads, gates, hidden = contiguous(q, own, heads, gates, hidden)
    out, frame = torch.empty_like(q), configure("frame")
    sizes = dict(H=num_heads, S=0 if own is None else own.shape[2], K=heads.shape[-1])
    grid = cdiv(batch_size * tgt_len, frame.blocks["BM"]), num_heads
    start("frame", grid, frame, q if own is None else own, heads, gates, out, batch_size * tgt_len, D=head_dim, **sizes)
    # the keys and values of the widest block of wide float32 heads do not fit into shared memory
    is_wide = q.dtype == torch.float32 and head_dim > 64
    launch = configure("ragged", D=pad(head_dim), rows=0 if is_wide else order.numel() // ends.numel())
    start_attention(
        "ragged", cdiv(tgt_len, launch.blocks["BM"]) * ends.numel(), launch,
        q, k, v, gates, hidden, out, order, ends, tgt_len, k.shape[1],
        GROUP=num_heads // k.shape[2], CAUSAL=causal, **sizes,
    )  # fmt: skip
    return out


def _decode_products(q, k, v, heads, gates, *rest):
    return _attention_products(prod((q if heads is None else gates).shape[:2]), q, k)


@_operator("decode", lambda q, *rest: torch.empty_like(q), _decode_products)
def decode(
    q: Tensor, k: Tensor, v: Tensor, heads: Tensor | None, gates: Tensor | None, hidden: Tensor | None
) -> Tensor:
    """Attend from one token (B, h, D) at the end of (B, S, g, D), with gates (B, s + K), without a gradient.

    The token uses s shared heads and the ``heads`` (B, K) of the others, as in ragged; without them every one, and then
    the gates are a softmax of ``gates`` (B, h). Its heads of a key/value head are rows of one tile, and the keys are
    split among programs.
    """
    used = q.shape[1] if heads is None else gates.shape[1]
    return _combine(q, heads, gates, *_decode_parts(q, k, v, heads, used, hidden))


Parts = tuple[Tensor, Tensor, Tensor]
"""Sums (B, used, splits, D) of attention over parts of the keys, with their tops and their norms (B, used, splits)."""


def _combine(q: Tensor, heads: Tensor | None, gates: Tensor | None, parts: Parts, sizes: dict[str, int]) -> Tensor:
    """Put together what _decode_parts returns for ``q``, times the gates."""
    out, gates = q.new_empty(q.shape), gates if gates is None else with_rows(gates)
    stride = 0 if gates is None else gates.stride(0)
    start(
        "combine", (prod(q.shape[:2]),), configure("combine"),
        *parts, heads, gates, out, stride, D=q.shape[2], **sizes,
    )  # fmt: skip
    return out


def _decode_parts(
    q: Tensor, k: Tensor, v: Tensor, heads: Tensor | None, used: int, hidden: Tensor | None
) -> tuple[Parts, dict[str, int]]:
    """Attend from the ``used`` heads of a token (B, h, D) to each part of the keys; return also the launch's sizes."""
    (batch_size, num_heads, head_dim), (src_len, num_kv_heads) = q.shape, k.shape[1:3]
    q, heads, hidden = contiguous(q, heads, hidden)
    group, launch = num_heads // num_kv_heads, configure("decode")
    tiles = batch_size * num_kv_heads * cdiv(min(used, group), launch.blocks["BM"])
    splits = splits_of_keys(tiles, src_len)
    part = q.new_empty(batch_size, used, splits, head_dim, dtype=torch.float32)
    top, norm = (part.new_empty(part.shape[:-1]) for _ in range(2))
    sizes = dict(H=num_heads, S=used if heads is None else used - heads.shape[1], K=used, SPLITS=splits)
    start_attention(
        "decode", splits * tiles, launch,
        q, k, v, heads, hidden, part, top, norm, src_len, cdiv(src_len, splits), GROUP=group, **sizes,
    )  # fmt: skip
    return (part, top, norm), sizes


def _decode_collect_products(q, k, v, hidden, w, gates, order, ends):
    product = ("expert_linear", {"m": order.shape[0], "i": w.shape[1], "j": w.shape[2]}, (4,))
    return [*_attention_products(prod(q.shape[:2]), q, k), product]


@_operator(
    "decode_collect", lambda q, k, v, hidden, w, *rest: q.new_empty(len(q), w.shape[2]), _decode_collect_products
)
def decode_collect(
    q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None, w: Tensor, gates: Tensor, order: Tensor, ends: Tensor
) -> Tensor:
    """Return ``collect`` of what ``decode`` returns for every head: a few parts of the keys are put together where the
    output product reads them, without a launch of their own."""
    parts, sizes = _decode_parts(q, k, v, None, q.shape[1], hidden)
    if sizes["SPLITS"] > MOST_PARTS_OF_A_PRODUCT:
        parts = (_combine(q, None, None, parts, sizes),)
    rows, _ = _expert(parts[0].flatten(2).flatten(0, 1), w, None, gates, order, ends, 1, None, *parts[1:])
    return _sum_slots(rows, q.shape[1])
