"""Mixture of heads over aggregated attention (MoH-ViT, arXiv 2410.11842)."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from headcount.models.aggregated import AggregatedAttention, Grid, compute_heads, joint_softmax
from headcount.models.configs.moh import Form
from headcount.models.configs.moh_aggregated import MixtureOfHeadAggregatedConfig
from headcount.models.experts import gathered_product
from headcount.models.head_router import HeadRouter
from headcount.models.moh import MixtureOfHeadAttention, SelectedOutputProjection, SelectedQueryProjection
from headcount.models.shapes import Queries, SelectedHeads


def reference(layer: "MixtureOfHeadAggregatedAttention", x: Queries, grid: Grid) -> Queries:
    """Compute every head and multiply it by its gate: 0 where a token has not selected it (the released code).

    In the ideal form compute only the heads that each token selects.
    """
    selected, gates = layer.router(x)
    if layer.config.form is Form.IDEAL:
        return layer.out_proj(compute_selected_heads(layer, x, grid, selected) * gates[..., None], selected)
    out = compute_heads(layer, x, grid)
    all_gates = layer.router.weigh_all(selected, gates)
    return layer.out_proj((out * all_gates.unsqueeze(-1)).flatten(-2))


def compute_selected_heads(
    layer: "MixtureOfHeadAggregatedAttention", x: Queries, grid: Grid, selected: SelectedHeads
) -> Float[Tensor, "batch tgt k head_dim"]:
    """Return the outputs of the heads that each token selects; keys and values of all heads, which other tokens
    read."""
    direction = F.normalize(layer.q_proj(x, selected, layer.config.head_dim), dim=-1)
    scale = gather_heads(layer.scale(grid), selected)
    query = (direction + layer.query_embedding[selected]) * scale[..., None]
    (keys, pooled), bias = layer.keys_and_values(x), gather_heads(layer.position_bias(grid), selected)
    if pooled is None:
        weights = torch.softmax(multiply_by_head(query, keys.key.transpose(-2, -1), selected) + bias, dim=-1)
        return multiply_by_head(weights, keys.value, selected)
    near = torch.matmul(query[..., None, :], gather_windows(layer.neighbours(keys.key), selected))[..., 0, :]
    far = multiply_by_head(query, pooled.key.transpose(-2, -1), selected) + bias
    near, far = joint_softmax(near + layer.window_bias[selected], far, grid.hidden[:, None])
    near = near + gathered_product(direction, layer.window_tokens, selected) + layer.window_weight[selected]
    values = gather_windows(layer.neighbours(keys.value), selected).transpose(-2, -1)
    return torch.matmul(near[..., None, :], values)[..., 0, :] + multiply_by_head(far, pooled.value, selected)


class MixtureOfHeadAggregatedAttention(AggregatedAttention):
    """sum_i g_i H^i W_O^i with the heads H^i of aggregated attention, window and pooled part gated together.

    Released, every head is computed and multiplied by its gate; ideal, a token's k = s + r selected heads alone.
    Parameters and results are the same.
    """

    routing_loss = MixtureOfHeadAttention.routing_loss

    def __init__(self, config: MixtureOfHeadAggregatedConfig) -> None:
        ideal = config.form is Form.IDEAL
        super().__init__(config, *((SelectedQueryProjection, SelectedOutputProjection) if ideal else ()))
        self.router = HeadRouter(config)


def gather_heads(x: Float[Tensor, "heads #tgt *rest"], selected: SelectedHeads) -> Float[Tensor, "batch tgt k *rest"]:
    """Gather the part of ``x`` that belongs to each token's selected heads."""
    tokens = torch.arange(selected.shape[1], device=x.device)[:, None]
    return x.expand(-1, selected.shape[1], *x.shape[2:])[selected, tokens]


def gather_windows(
    x: Float[Tensor, "batch heads tgt head_dim 9"], selected: SelectedHeads
) -> Float[Tensor, "batch tgt k head_dim 9"]:
    """Gather the window of each token in its selected heads."""
    return x.transpose(1, 2).gather(2, selected[..., None, None].expand(-1, -1, -1, *x.shape[3:]))


def multiply_by_head(
    rows: Float[Tensor, "batch tgt k fan_in"],
    matrices: Float[Tensor, "batch heads fan_in fan_out"],
    selected: SelectedHeads,
) -> Float[Tensor, "batch tgt k fan_out"]:
    """Multiply each row by the matrix of its head in its sequence."""
    first = matrices.shape[1] * torch.arange(matrices.shape[0], device=rows.device)[:, None, None]
    return gathered_product(rows, matrices.flatten(0, 1), selected + first)
