"""The Triton kernels as operators of torch: ``torch.ops.headcount.*``, with shapes, gradients and exact MACs.

Importable without triton: on meta and under a counter an operator is its shapes, and only one that runs imports the
kernels. An operator's attribute ``contractions`` takes its arguments, tensors or anything else with a ``shape``, and
gives its products as (kind, sizes, positions of the operands). Attention is differentiated through torch's fused core.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor

from headcount.models.configs.moa import Gates
from headcount.models.kernels.fused import fused_attend


def _kernels():
    from headcount.models.kernels import triton_launch

    return triton_launch


def _operator(name: str, shapes: Callable, contractions: Callable, gradient: tuple[Callable, Callable] | None = None):
    """Register the decorated function as operator ``headcount::name``; ``gradient`` is (setup_context, backward)."""

    def make(function: Callable):
        made = torch.library.custom_op(f"headcount::{name}", mutates_args=())(function)
        made.register_fake(shapes)
        if gradient:
            made.register_autograd(gradient[1], setup_context=gradient[0])
        getattr(torch.ops.headcount, name).contractions = contractions
        return made

    return make


def _none(*args) -> list[tuple[str, dict[str, int], tuple[int, ...]]]:
    return []


# Routing


def _route_shapes(x, w, top_k, gates, with_logits):
    num_tokens, num_experts = x.shape[0], w.shape[0]
    rows = num_tokens if top_k < num_experts else 0
    return (
        x.new_empty(num_tokens, top_k, dtype=torch.float32),
        x.new_empty(num_tokens, top_k if rows else 0, dtype=torch.int32),
        x.new_empty(rows * top_k, dtype=torch.int32),
        x.new_empty(num_experts if rows else 0, dtype=torch.int32),
        x.new_empty(num_tokens, num_experts if with_logits else 0, dtype=torch.float32),
    )


def _route_products(x, w, *rest):
    return [("linear", {"m": x.shape[0], "i": x.shape[1], "j": w.shape[0]}, (0, 1))]


def _save_routing(ctx, inputs, output):
    x, w, ctx.top_k, ctx.gates, with_logits = inputs
    if not with_logits:
        raise RuntimeError("a gradient of route needs its logits: with_logits=True")
    ctx.save_for_backward(x, w, output[1], output[4])


def _route_backward(ctx, grad_gates, grad_experts, grad_order, grad_ends, grad_logits):
    x, w, experts, logits = ctx.saved_tensors
    probs = torch.softmax(logits, -1)
    if grad_gates is None:
        grad = torch.zeros_like(logits)
    elif ctx.top_k == w.shape[0]:
        grad = grad_gates
    else:
        chosen = experts.long()
        if ctx.gates == Gates.SELECTED:
            # a softmax of the selected logits, 0 at the others
            probs = torch.zeros_like(logits).scatter(-1, chosen, torch.softmax(logits.gather(-1, chosen), -1))
        elif ctx.gates == Gates.PRINTED:
            # the sum of the selected probabilities is a constant (Eq. 9)
            grad_gates = grad_gates / probs.gather(-1, chosen).sum(-1, keepdim=True)
        grad = torch.zeros_like(logits).scatter(-1, chosen, grad_gates)
    grad = probs * (grad - (grad * probs).sum(-1, keepdim=True))
    grad = (grad if grad_logits is None else grad + grad_logits).to(x.dtype)
    return grad @ w if ctx.needs_input_grad[0] else None, grad.t() @ x, None, None, None


@_operator("route", _route_shapes, _route_products, (_save_routing, _route_backward))
def route(
    x: Tensor, w: Tensor, top_k: int, gates: str, with_logits: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return softmax(x W_g^T) of tokens (N, d) and W_g (E, d) at the K highest logits of each token (Eq. 2, 7-9).

    Gates (N, K), float32, of the kind ``gates`` by falling logit, and experts (N, K), the lower one among equals; row
    ids n*K + k in the order of their experts and where each expert's rows end; logits (N, E) with ``with_logits``,
    without columns else. Where K = E the gates are all probabilities in the experts' order, and experts, rows and ends
    are empty.
    """
    return _kernels().route(x, w, top_k, gates != Gates.RELEASED, with_logits)


def _plan_shapes(experts, num_experts):
    return experts.new_empty(experts.numel()), experts.new_empty(experts.shape[0] * num_experts)


@_operator("plan", _plan_shapes, _none)
def plan(experts: Tensor, num_experts: int) -> tuple[Tensor, Tensor]:
    """Return row ids in the order of (group, expert) and where each ends; experts (groups, n, K) are int32.

    The experts of a token must be different ones.
    """
    return _kernels().plan(experts.contiguous(), num_experts)


# Products with experts


def _spread_shapes(x, w, bias, order, ends, top_k):
    return x.new_empty(order.shape[0], w.shape[2])


def _rows_products(x, w, bias_or_gates, order, *rest):
    return [("expert_linear", {"m": order.shape[0], "i": w.shape[1], "j": w.shape[2]}, (0, 1))]


def _save_spread(ctx, inputs, output):
    x, w, bias, order, ends, ctx.top_k = inputs
    ctx.biased = bias is not None
    ctx.save_for_backward(x, w, order, ends)


def _spread_backward(ctx, grad):
    x, w, order, ends = ctx.saved_tensors
    grad = grad.contiguous()
    dx = collect(grad, w.transpose(1, 2), None, order, ends, ctx.top_k) if ctx.needs_input_grad[0] else None
    dw, db = None, None
    if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
        dw, db = weight_grad(x, grad, None, order, ends, ctx.biased)
    return dx, dw, db if ctx.biased else None, None, None, None


@_operator("spread", _spread_shapes, _rows_products, (_save_spread, _spread_backward))
def spread(x: Tensor, w: Tensor, bias: Tensor | None, order: Tensor, ends: Tensor, top_k: int) -> Tensor:
    """Return x_n W_e + b_e as row (n, k), for the expert e of slot k of token n; (N, in) to (N*K, out)."""
    return _kernels().expert(x, w, bias, None, order, ends, top_k)[0]


def _collect_shapes(x, w, gates, order, ends, top_k):
    return x.new_empty(x.shape[0] // top_k, w.shape[2])


def _save_collect(ctx, inputs, output):
    x, w, gates, order, ends, ctx.top_k = inputs
    ctx.save_for_backward(x, w, gates, order, ends)


def _collect_backward(ctx, grad):
    x, w, gates, order, ends = ctx.saved_tensors
    grad = grad.contiguous()
    dw, _ = weight_grad(x, grad, gates, order, ends, False) if ctx.needs_input_grad[1] else (None, None)
    if gates is None:
        return spread(grad, w.transpose(1, 2), None, order, ends, ctx.top_k), dw, None, None, None, None
    dx, dgates = spread_gated(grad, w.transpose(1, 2), gates, x, order, ends, ctx.top_k)
    return dx, dw, dgates.view_as(gates).to(gates.dtype), None, None, None


def _spread_gated_shapes(grad, w, gates, x, order, ends, top_k):
    return grad.new_empty(order.shape[0], w.shape[2]), grad.new_empty(order.shape[0], dtype=torch.float32)


def _spread_gated_products(grad, w, gates, x, order, *rest):
    return _rows_products(grad, w, None, order)


@_operator("spread_gated", _spread_gated_shapes, _spread_gated_products)
def spread_gated(
    grad: Tensor, w: Tensor, gates: Tensor, x: Tensor, order: Tensor, ends: Tensor, top_k: int
) -> tuple[Tensor, Tensor]:
    """Return g (grad_n W_e) as row (n, k), and the product of that row without g and x (N*K, out): the gradients of
    ``collect`` for its rows and its gates."""
    return _kernels().expert(grad, w, None, gates, order, ends, top_k, x)


@_operator("collect", _collect_shapes, _rows_products, (_save_collect, _collect_backward))
def collect(x: Tensor, w: Tensor, gates: Tensor | None, order: Tensor, ends: Tensor, top_k: int) -> Tensor:
    """Return for each token the sum over its K rows of g x W_e; (N*K, in) to (N, out)."""
    kernels = _kernels()
    return kernels.slots(kernels.expert(x, w, None, gates, order, ends, 1)[0], top_k)


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
    return _kernels().weight_grad(a, g, gates, order, ends, biased)


# Attention


def _attention_products(rows: int, q: Any, k: Any) -> list[tuple[str, dict[str, int], tuple[int, ...]]]:
    src_len, head_dim = k.shape[1], q.shape[-1]
    return [
        ("scores", {"m": rows, "i": head_dim, "j": src_len}, (0, 1)),
        ("values", {"m": rows, "i": src_len, "j": head_dim}, (2,)),
    ]


def _through_fused_core(grad: Tensor, needs: tuple[bool, ...], run: Callable, *inputs: Tensor | None) -> list:
    """Return the gradients of ``run(*inputs)``, recomputed by operations that torch differentiates."""
    leaves = [x if x is None else x.detach().requires_grad_(need) for x, need in zip(inputs, needs, strict=True)]
    with torch.enable_grad():
        out = run(*leaves)
    wanted = [leaf for leaf in leaves if leaf is not None and leaf.requires_grad]
    found = iter(torch.autograd.grad(out, wanted, grad))
    return [next(found) if leaf is not None and leaf.requires_grad else None for leaf in leaves]


def _mqa_products(q, k, *rest):
    return _attention_products(prod(q.shape[:3]), q, k)


def _save_attention(ctx, inputs, output):
    *tensors, ctx.causal = inputs
    ctx.save_for_backward(*tensors)


def _mqa_backward(ctx, grad):
    *inputs, hidden = ctx.saved_tensors

    def run(q, k, v, gates):
        out = fused_attend(q, k[:, :, None], v[:, :, None], causal=ctx.causal, key_padding_mask=hidden)
        return out if gates is None else (out * gates[..., None]).to(out.dtype)

    return *_through_fused_core(grad, ctx.needs_input_grad[:4], run, *inputs), None, None


@_operator("mqa", lambda q, *rest: torch.empty_like(q), _mqa_products, (_save_attention, _mqa_backward))
def mqa(q: Tensor, k: Tensor, v: Tensor, gates: Tensor | None, hidden: Tensor | None, causal: bool) -> Tensor:
    """Return softmax(Q K^T / sqrt(D)) V times gates, for K query heads (B, T, K, D) over one key/value head (B, S, D).

    ``hidden`` (B, S) is True at keys to hide; ``causal`` hides keys after the query, the last T positions.
    """
    return _kernels().mqa(q, k, v, gates, hidden, causal)


def _selected_products(q, k, v, heads, *rest):
    return _attention_products(prod(heads.shape), q, k)


def _ragged_backward(ctx, grad):
    q, k, v, heads, gates, hidden = ctx.saved_tensors

    def run(q, k, v, gates):
        out = fused_attend(q, k, v, causal=ctx.causal, key_padding_mask=hidden)
        all_gates = gates.new_zeros(out.shape[:3]).scatter(-1, heads.long(), gates)
        return (out * all_gates[..., None]).to(out.dtype)

    needs = ctx.needs_input_grad
    *core, dgates = _through_fused_core(grad, (*needs[:3], needs[4]), run, q, k, v, gates)
    return *core, None, dgates, None, None


@_operator("ragged", lambda q, *rest: torch.empty_like(q), _selected_products, (_save_attention, _ragged_backward))
def ragged(
    q: Tensor, k: Tensor, v: Tensor, heads: Tensor, gates: Tensor, hidden: Tensor | None, causal: bool
) -> Tensor:
    """Attend from (B, T, h, D) to (B, S, g, D) for the heads (B, T, k) of each token, times their gates (B, T, k).

    Zeros at the other heads, which are not computed; int32 ``heads`` of a token are different ones; masks as mqa's.
    """
    return _kernels().ragged(q, k, v, heads.contiguous(), gates, hidden, causal)


@_operator("decode", lambda q, *rest: torch.empty_like(q), _selected_products)
def decode(q: Tensor, k: Tensor, v: Tensor, heads: Tensor, gates: Tensor, hidden: Tensor | None) -> Tensor:
    """Compute ``ragged`` for one token (B, h, D) at the end of (B, S, g, D), without a gradient.

    The selected heads of a key/value head are rows of one tile, and its keys are split among programs.
    """
    return _kernels().decode(q, k, v, heads, gates, hidden)
