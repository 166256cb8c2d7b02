"""MoA with every expert computed for every token: two dense products and no permutation.

Exactly MoA's own work where K = E, where it also needs no top-K; E / K times its projections and core otherwise.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from headcount.models.attention import Inputs
from headcount.models.experts import to_autocast_dtype
from headcount.models.kernels.fused import fused_attend
from headcount.models.moa import attend_slots
from headcount.models.shapes import Queries

AllGates = Float[Tensor, "batch tgt num_experts"] | None
"""The gates of all experts, 0 at those that a token does not select."""


def dense_all(layer: nn.Module, inputs: Inputs) -> Queries:
    """Return y_t = sum_{i=1..E} g_i,t o_i,t Wo_i with g = w on the K selected experts and 0 on the others."""
    routing = layer.router(inputs.query, inputs.query_padding_mask, ranked=False)
    if layer.config.top_k == layer.config.num_experts:
        gates = routing.weights
    else:
        gates = torch.zeros_like(routing.probs).scatter(-1, routing.indices, routing.weights)

    out = attend_slots(all_queries(layer, inputs.query), inputs, fused_attend) * gates[..., None]
    return sum_experts(layer, out, gates)


def all_queries(layer: nn.Module, x: Queries) -> Float[Tensor, "batch tgt num_experts head_dim"]:
    """Return the query of every expert for every token."""
    # (E, d_m, D) as one (d_m, E*D) matrix: a copy of the weights, small compared with its product
    weight = to_autocast_dtype(layer.q_proj.weight).transpose(0, 1).flatten(1)
    bias = None if layer.q_proj.bias is None else to_autocast_dtype(layer.q_proj.bias).flatten()
    return F.linear(x, weight.t(), bias).unflatten(-1, (-1, layer.config.head_dim))


def sum_experts(layer: nn.Module, out: Float[Tensor, "batch tgt num_experts head_dim"], gates: AllGates) -> Queries:
    """Return sum_i out_i Wo_i + g_i b_i of head outputs that are multiplied by their gates g already; without a bias
    no gates are needed."""
    y = torch.matmul(out.flatten(-2), to_autocast_dtype(layer.out_proj.weight).flatten(0, 1))
    return add_bias(layer, y, gates)


def add_bias(layer: nn.Module, y: Queries, gates: AllGates) -> Queries:
    """Return y + sum_i g_i b_i; ``y`` without a bias."""
    bias = to_autocast_dtype(layer.out_proj.bias)
    return y if bias is None else y + torch.matmul(gates.to(y.dtype), bias)


def add_selected_bias(bias: Tensor | None, y: Tensor, indices: Tensor, gates: Tensor) -> Tensor:
    """Return y_t + sum_{i in G(x_t)} g_i,t b_i, as a product with the gates of all E experts; ``y`` without a bias."""
    if bias is None:
        return y
    gates = gates.to(y.dtype)
    scattered = gates.new_zeros(*gates.shape[:-1], len(bias)).scatter(-1, indices.long(), gates)
    return y + torch.matmul(scattered, bias)
