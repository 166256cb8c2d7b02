"""MoA by the algorithm of the authors' released code: the baseline for "memory copies".

Every projection copies its rows into the order of their experts, multiplies them in a Python loop over sizes that
the host reads back, concatenates, and adds the rows into zeros; scores are materialised (github yikangshen/MoA,
moa_layer/). This is a reimplementation; the gates are the layer's.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.models.attention import Inputs, attend
from headcount.models.experts import ExpertLinear, to_autocast_dtype
from headcount.models.moa import attend_slots
from headcount.models.shapes import Queries


def loop(layer: nn.Module, inputs: Inputs) -> Queries:
    """Return the reference's output; rows whose gate is exactly 0 are skipped, as in the released code."""
    query, top_k = inputs.query, layer.config.top_k
    routing = layer.router(query, inputs.query_padding_mask)
    gates, experts = routing.weights.flatten(), routing.indices.flatten()
    # a NaN gate is not 0
    selected = torch.zeros_like(routing.probs).scatter(-1, routing.indices, routing.weights) != 0
    used = gates.nonzero().flatten()
    # row ids in the order of their experts, with their tokens and gates, and the number of rows of each expert
    rows = used[experts[used].sort().indices]
    tokens, gates, sizes = rows // top_k, gates[rows], selected.flatten(0, 1).sum(0)

    x = query.reshape(-1, query.shape[-1])
    q = _experts(layer.q_proj, x[tokens], sizes)
    q = q.new_zeros(x.shape[0] * top_k, q.shape[-1]).index_add(0, rows, q)

    out = attend_slots(q.view(*query.shape[:2], top_k, -1), inputs, attend)

    y = _experts(layer.out_proj, out.reshape(-1, out.shape[-1])[rows], sizes) * gates[:, None]
    return y.new_zeros(x.shape).index_add(0, tokens, y).view_as(query)


def _experts(experts: ExpertLinear, rows: Float[Tensor, "rows fan_in"], sizes: Tensor) -> Float[Tensor, "rows fan_out"]:
    """Return x W_e + b_e of rows sorted by expert, one product after another."""
    rows, weight, bias = map(to_autocast_dtype, (rows, experts.weight, experts.bias))
    products = [torch.mm(x_e, w_e) for x_e, w_e in zip(rows.split(sizes.tolist()), weight, strict=True)]
    if bias is not None:
        products = [y_e + b_e for y_e, b_e in zip(products, bias, strict=True)]
    return torch.cat(products)
