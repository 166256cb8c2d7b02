"""MoH by Triton kernels: attention for the selected heads of each token alone, read and written where they lie.

Shared heads go through torch's fused core, for every token at once; queries and outputs stay dense products. Where a
gradient is wanted, and under dropout, that core computes every head, as in ``fused``.
"""

import torch
from torch import nn

from headcount.models.attention import Inputs, split_heads
from headcount.models.kernels import triton_ops as ops
from headcount.models.kernels.fused import attend_shared
from headcount.models.kernels.triton_configs import WIDEST_HEAD_OF_RAGGED
from headcount.models.kernels.triton_moa import check_dtype, needs_gradient
from headcount.models.moh import fused
from headcount.models.rotary import rotate
from headcount.models.shapes import Queries


def run(layer: nn.Module, inputs: Inputs) -> Queries:
    """Return the layer's output (Eq. 3-4). Raises ConfigError for a dtype that the kernels do not take."""
    config, x, key, value, hidden = layer.config, *inputs[:3], inputs.key_padding_mask
    is_wide = config.head_dim > WIDEST_HEAD_OF_RAGGED
    if inputs.dropout or is_wide or needs_gradient(x, key, value, *layer.parameters()):
        return fused(layer, inputs)
    query = split_heads(layer.q_proj(x), config.head_dim)
    check_dtype(query)
    selected, gates = layer.router(x, inputs.query_padding_mask, query)
    query, heads = rotate(query, inputs.rotary), selected.to(torch.int32)
    if x.shape[1] == 1:
        # the last position sees every key
        out = ops.decode(query[:, 0], key, value, heads[:, 0], gates[:, 0], hidden)[:, None]
    else:
        shared, group = config.num_shared_heads, config.num_heads // config.num_kv_heads
        if config.top_k:
            routed = heads[..., shared:], gates[..., shared:]
            out = ops.ragged(query, key, value, *routed, hidden, inputs.causal)
        else:
            out = torch.empty_like(query)
        if shared:
            own = attend_shared(query[:, :, :shared], key, value, group, **inputs.masks)
            out[:, :, :shared] = own * gates[..., :shared, None]
    return layer.out_proj(out.flatten(-2))
