"""Mixture feed-forward with the rows of an expert multiplied together, on the routing plan of ``grouped.py``."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.models.experts import ExpertLinear
from headcount.models.kernels.autocast import lowered
from headcount.models.kernels.grouped import (
    CollectTokens,
    SpreadTokens,
    has_fast_path,
    make_plan,
    padded_grouped_mm,
    with_output_bias,
)
from headcount.models.kernels.segments import collect, make_segments, spread
from headcount.models.router import Routing


def grouped(
    layer: nn.Module, x: Float[Tensor, "batch seq d_model"], routing: Routing
) -> Float[Tensor, "batch seq d_model"]:
    """As the reference, one product for all rows of an expert."""
    run = _by_grouped_mm if has_fast_path(x.device, lowered(x).dtype) else _by_segments
    y = run(layer, lowered(x).flatten(0, 1), routing).view(x.shape)
    return with_output_bias(layer.outward.bias, y, routing.indices, routing.weights)


def _by_segments(layer: nn.Module, x: Float[Tensor, "tokens d_model"], routing: Routing) -> Tensor:
    segments = make_segments(routing.indices, layer.config.num_experts)
    operands = [(lowered(project.weight), _bias(project)) for project in layer.inward]
    gates, outward = lowered(routing.weights.flatten()), lowered(layer.outward.weight)
    # operands are cast already, and results are written into buffers of their dtype
    with torch.autocast(x.device.type, enabled=False):
        hidden = layer.hidden(*(spread(x, weight, bias, segments) for weight, bias in operands))
        return collect(hidden, gates, outward, x.shape[0], segments)


def _by_grouped_mm(layer: nn.Module, x: Float[Tensor, "tokens d_model"], routing: Routing) -> Tensor:
    plan = make_plan(routing.indices, layer.config.num_experts)
    rows = SpreadTokens.apply(x, plan)
    hidden = layer.hidden(*(_rows_through(project, rows, plan) for project in layer.inward))
    y = padded_grouped_mm(hidden, lowered(layer.outward.weight), plan.offsets)
    gates = lowered(routing.weights.flatten()).index_select(0, plan.order)
    return CollectTokens.apply(y * gates[:, None], plan)


def _rows_through(project: ExpertLinear, rows: Tensor, plan) -> Tensor:
    out, bias = padded_grouped_mm(rows, lowered(project.weight), plan.offsets), _bias(project)
    return out if bias is None else out + bias.index_select(0, plan.experts.int())


def _bias(project: ExpertLinear) -> Tensor | None:
    return None if project.bias is None else lowered(project.bias)
