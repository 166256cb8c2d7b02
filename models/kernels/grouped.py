"""MoA and mixture feed-forward with the rows of an expert multiplied together, without gathered weights.

Only selected experts are computed. On CUDA one routing plan serves all projections: static shapes, offsets that stay
on the device, torch's grouped matrix product. Elsewhere, and where that has no fast path, one product per segment
(``models/kernels/segments.py``).
"""

import logging
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from headcount.models.attention import Inputs
from headcount.models.experts import ExpertLinear, to_autocast_dtype
from headcount.models.kernels.dense_all import add_selected_bias
from headcount.models.kernels.fused import fused_attend
from headcount.models.kernels.segments import CollectSegments, SpreadSegments, make_segments, sort_rows
from headcount.models.kernels.selection import log_once
from headcount.models.kernels.triton_moa import route
from headcount.models.moa import attend_slots
from headcount.models.router import Routing
from headcount.models.shapes import Queries, Tokens

ALIGNED_BYTES = 16


def grouped(layer: nn.Module, inputs: Inputs) -> Queries:
    """Return the reference's output; the gates are multiplied into the head outputs."""
    query = to_autocast_dtype(inputs.query)
    is_fast, config = has_fast_path(query.device, query.dtype), layer.config
    if is_fast and config.top_k < config.num_experts and layer.is_available("triton", query):
        # one kernel selects and orders, instead of a top-K, a sort and a search
        gates, indices, *order = route(layer, query, inputs.query_padding_mask)
        return _by_grouped_mm(layer, inputs, indices, gates.to(query.dtype), order)
    routing = layer.router(inputs.query, inputs.query_padding_mask)
    if is_fast:
        order = sort_rows(routing.indices, config.num_experts)
        return _by_grouped_mm(layer, inputs, routing.indices, routing.weights, order)
    return _by_segments(layer, inputs, routing.indices, routing.weights)


def has_fast_path(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether torch's grouped product runs as one kernel; warn once on CUDA where it does not.

    Its fast path is bfloat16 on compute capability 9.0 or more. For anything else torch itself would read the
    offsets back and loop, and float64 is refused. On meta it gives shapes, in bfloat16.
    """
    if device.type != "cuda":
        return device.type == "meta"
    capability = torch.cuda.get_device_capability(device)
    if dtype == torch.bfloat16 and capability >= (9, 0):
        return True
    log_once(
        logging.WARNING,
        f"grouped has no fast path for {dtype} on compute capability {capability[0]}.{capability[1]}: one product "
        "per expert, and the host waits for the sizes; bfloat16 from 9.0 on has one",
    )
    return False


def _by_segments(layer: nn.Module, inputs: Inputs, indices: Tensor, gates: Tensor) -> Tensor:
    segments = make_segments(indices, layer.config.num_experts)
    # the dtype of a cache may be that of the weights
    x, key, value, gates = map(to_autocast_dtype, (*inputs[:3], gates))
    w_q, bias, w_o = map(to_autocast_dtype, (layer.q_proj.weight, layer.q_proj.bias, layer.out_proj.weight))
    # operands are cast already, and results are written into buffers of their dtype
    with torch.autocast(x.device.type, enabled=False):
        q = SpreadSegments.apply(x.flatten(0, 1), w_q, bias, segments)
        out = attend_slots(q.view(*indices.shape, -1), inputs._replace(key=key, value=value), fused_attend)
        y = CollectSegments.apply(out.reshape(q.shape), gates.flatten(), w_o, x.shape[0] * x.shape[1], segments)
    return add_selected_bias(layer.out_proj.bias, y.view(x.shape), indices, gates)


def _by_grouped_mm(layer: nn.Module, inputs: Inputs, indices: Tensor, gates: Tensor, order: Sequence[Tensor]) -> Tensor:
    plan = make_plan(indices, *order)
    x, gates, w_o = map(to_autocast_dtype, (inputs.query, gates, layer.out_proj.weight))
    rows = MoveRows.apply(x.flatten(0, 1), plan.tokens, plan.inverse, plan.top_k)
    q = MoveRows.apply(_rows_through(layer.q_proj, rows, plan), plan.inverse, plan.order, 1)

    out = attend_slots(q.view(*indices.shape, -1), inputs, fused_attend)
    if torch.is_grad_enabled():
        # on the narrow side: the gradient of a gate needs what it multiplies
        out = out * gates[..., None]
    rows = MoveRows.apply(out.reshape(q.shape), plan.order, plan.inverse, 1)
    rows = padded_grouped_mm(rows, w_o, plan.offsets)
    if torch.is_grad_enabled():
        y = MoveRows.apply(rows, plan.tokens, plan.inverse, plan.top_k, True)
    else:
        # order, gate and sum in one pass
        bags = plan.inverse.view(-1, plan.top_k)
        y = F.embedding_bag(bags, rows, mode="sum", per_sample_weights=gates.view_as(bags).to(rows.dtype))
    return add_selected_bias(layer.out_proj.bias, y.view(x.shape), indices, gates)


def grouped_ffn(layer: nn.Module, x: Tokens, routing: Routing) -> Tokens:
    """Return the reference's output with one product for all rows of an expert."""
    run = _ffn_by_grouped_mm if has_fast_path(x.device, to_autocast_dtype(x).dtype) else _ffn_by_segments
    y = run(layer, to_autocast_dtype(x).flatten(0, 1), routing).view(x.shape)
    return add_selected_bias(layer.outward.bias, y, routing.indices, routing.weights)


def _ffn_by_segments(layer: nn.Module, x: Float[Tensor, "tokens d_model"], routing: Routing) -> Tensor:
    segments = make_segments(routing.indices, layer.config.num_experts)
    operands = [(to_autocast_dtype(project.weight), to_autocast_dtype(project.bias)) for project in layer.inward]
    gates, outward = to_autocast_dtype(routing.weights.flatten()), to_autocast_dtype(layer.outward.weight)
    # operands are cast already, and results are written into buffers of their dtype
    with torch.autocast(x.device.type, enabled=False):
        hidden = layer.hidden(*(SpreadSegments.apply(x, weight, bias, segments) for weight, bias in operands))
        return CollectSegments.apply(hidden, gates, outward, x.shape[0], segments)


def _ffn_by_grouped_mm(layer: nn.Module, x: Float[Tensor, "tokens d_model"], routing: Routing) -> Tensor:
    plan = make_plan(routing.indices, *sort_rows(routing.indices, layer.config.num_experts))
    rows = MoveRows.apply(x, plan.tokens, plan.inverse, plan.top_k)
    hidden = layer.hidden(*(_rows_through(project, rows, plan) for project in layer.inward))
    y = padded_grouped_mm(hidden, to_autocast_dtype(layer.outward.weight), plan.offsets)
    gates = to_autocast_dtype(routing.weights.flatten()).index_select(0, plan.order)
    return MoveRows.apply(y * gates[:, None], plan.tokens, plan.inverse, plan.top_k, True)


def _rows_through(project: ExpertLinear, rows: Tensor, plan: "Plan") -> Tensor:
    out = padded_grouped_mm(rows, to_autocast_dtype(project.weight), plan.offsets)
    bias = to_autocast_dtype(project.bias)
    return out if bias is None else out + bias.index_select(0, plan.indices.flatten().index_select(0, plan.order))


class Plan(NamedTuple):
    """The order that groups rows by expert; row n*K + k is slot k of token n."""

    order: Int[Tensor, "rows"]
    inverse: Int[Tensor, "rows"]
    tokens: Int[Tensor, "rows"]
    indices: Int[Tensor, "batch tgt top_k"]
    offsets: Int[Tensor, "num_experts"]
    top_k: int


def make_plan(indices: Int[Tensor, "batch tgt top_k"], order: Int[Tensor, "rows"], offsets: Tensor) -> Plan:
    """Return the plan of a routing whose rows have the ``order`` of their experts, which end at ``offsets``."""
    top_k, order = indices.shape[-1], order.long()
    inverse = torch.empty_like(order).scatter(0, order, torch.arange(order.numel(), device=order.device))
    return Plan(order, inverse, order // top_k, indices, offsets, top_k)


def padded_grouped_mm(
    rows: Float[Tensor, "rows in_features"],
    weight: Float[Tensor, "num_experts in_features out_features"],
    offsets: Int[Tensor, "num_experts"],
) -> Float[Tensor, "rows out_features"]:
    """Multiply rows by their expert's matrix; pad widths that are no multiple of 16 bytes with zeros."""
    unit = ALIGNED_BYTES // rows.element_size()
    in_features, out_features = weight.shape[1:]
    more_in, more_out = -in_features % unit, -out_features % unit
    if more_in or more_out:
        log_once(
            logging.WARNING,
            f"grouped pads {in_features}x{out_features} to multiples of {unit}, and copies the weights for it",
        )
        rows, weight = F.pad(rows, (0, more_in)), F.pad(weight, (0, more_out, 0, more_in))
    out = F.grouped_mm(rows, weight, offs=offsets)
    return out[:, :out_features] if more_out else out


class MoveRows(torch.autograd.Function):
    """Rows of ``x`` at ``index``, which has each row ``top_k`` times: (N, d) tokens to (N*K, d) rows, or another order.

    Where ``collects``, the transpose: the sums over ``top_k`` rows that ``inverse`` puts side by side, without atomics.
    The backward pass is the other one of the two.
    """

    @staticmethod
    def forward(ctx, x, index, inverse, top_k, collects=False):
        ctx.given = index, inverse, top_k, not collects
        return _moved(x, index, inverse, top_k, collects)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        return _moved(grad, *ctx.given), None, None, None, None


def _moved(x: Tensor, index: Tensor, inverse: Tensor, top_k: int, collects: bool) -> Tensor:
    rows = x.index_select(0, inverse if collects else index)
    return rows.unflatten(0, (-1, top_k)).sum(1) if collects and top_k > 1 else rows
