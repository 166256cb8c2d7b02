"""MoH by Triton kernels: attention for the selected heads of each token alone, read and written where they lie.

One kernel routes. Shared heads go through torch's fused core, for every token at once; queries and outputs stay dense
products. Where a gradient is wanted, and under dropout, that core computes every head, as in ``fused``.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headcount.models.attention import Inputs, split_heads
from headcount.models.configs.moh import Gates, Router
from headcount.models.experts import to_autocast_dtype
from headcount.models.kernels import triton_ops as ops
from headcount.models.kernels.fused import attend_shared
from headcount.models.kernels.triton_configs import WIDEST_HEAD_OF_RAGGED
from headcount.models.kernels.triton_moa import check_dtype, needs_gradient
from headcount.models.moh import fused
from headcount.models.rotary import rotate
from headcount.models.router import Routing
from headcount.models.shapes import Queries, QueryHeads


def run(layer: nn.Module, inputs: Inputs) -> Queries:
    """Return the layer's output (Eq. 3-4). Raises ConfigError for a dtype that the kernels do not take."""
    config, x, key, value, hidden = layer.config, *inputs[:3], inputs.key_padding_mask
    is_wide = config.head_dim > WIDEST_HEAD_OF_RAGGED
    if not config.top_k or inputs.dropout or is_wide or needs_gradient(x, key, value, *layer.parameters()):
        return fused(layer, inputs)
    query = split_heads(layer.q_proj(x), config.head_dim)
    check_dtype(query)
    heads, gates, order, ends = _route(layer, inputs, query)
    query = rotate(query, inputs.rotary)
    if x.shape[1] == 1:
        # the last position sees every key
        out = ops.decode(query[:, 0], key, value, heads[:, 0], gates[:, 0], hidden)[:, None]
    else:
        shared, group = config.num_shared_heads, config.num_heads // config.num_kv_heads
        own = attend_shared(query[:, :, :shared], key, value, group, **inputs.masks) if shared else None
        out = ops.ragged(query, key, value, own, heads, gates, order, ends, hidden, inputs.causal)
    return layer.out_proj(out.flatten(-2))


def _route(
    layer: nn.Module, inputs: Inputs, query: QueryHeads
) -> tuple[Int[Tensor, "batch tgt top_k"], Float[Tensor, "batch tgt k"], Int[Tensor, "rows"], Int[Tensor, "ends"]]:
    """Return routed heads numbered from 0, gates with those of the shared heads first, and the order of rows."""
    router, config = layer.router, layer.config
    router.recorded = None
    chosen = config.num_shared_heads, config.top_k
    if config.router is Router.QUERY_NORM:
        made = ops.norm_route(query, *chosen)
        logits = router.score_norms(query) if router.is_recorded else None
    else:
        projections = router.routed_proj, router.shared_proj, router.group_proj
        weights = [None if projection is None else to_autocast_dtype(projection.weight) for projection in projections]
        released = config.gates is Gates.RELEASED
        *made, logits = ops.head_route(to_autocast_dtype(inputs.query), *weights, *chosen, released)
    if router.is_recorded:
        probs, indices = torch.softmax(logits, dim=-1), made[0].long()
        router.record(Routing(probs.gather(-1, indices), indices, logits, probs), inputs.query_padding_mask)
    return tuple(made)
