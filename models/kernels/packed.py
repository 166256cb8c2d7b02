"""Several projections of the same tokens as one product: what inference engines and fused layers do with q, k and v."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headcount.models.shapes import Queries


def project_together(x: Queries, *projections: nn.Linear) -> tuple[Tensor, ...]:
    """Return the outputs of ``projections`` for ``x``, columns of one product.

    Their weights are put together in each call, since every projection keeps parameters of its own.
    """
    weights, bias = [one.weight for one in projections], None
    if any(one.bias is not None for one in projections):
        zeros = (one.weight.new_zeros(len(one.weight)) for one in projections)
        bias = torch.cat([zero if one.bias is None else one.bias for one, zero in zip(projections, zeros, strict=True)])
    return F.linear(x, torch.cat(weights), bias).split([len(weight) for weight in weights], dim=-1)
