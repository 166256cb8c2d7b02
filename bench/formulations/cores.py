"""The attention core in each common formulation.

Every function takes queries (B, h, T, d), keys and values (B, g, S, d) with g dividing h, and returns (B, h, T, d).
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Core = Callable[[Tensor, Tensor, Tensor], Tensor]


def _with(product: Callable[[Tensor, Tensor], Tensor]) -> Core:
    """Return the core that calls ``product`` for the scores and for the values."""

    def core(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = _for_each_query_head(q, k, v)
        return product(torch.softmax(product(_scaled(q), k.transpose(-2, -1)), dim=-1), v)

    return core


# The names are looked up at each call: tools patch them.
with_matmul = _with(lambda a, b: torch.matmul(a, b))
with_method = _with(lambda a, b: a.matmul(b))
with_operator = _with(lambda a, b: a @ b)
# All heads of the batch are one dimension.
with_bmm = _with(lambda a, b: torch.bmm(_flat(a), _flat(b)).view(*a.shape[:-1], b.shape[-1]))


def with_einsum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """torch.einsum, twice."""
    k, v = _for_each_query_head(q, k, v)
    weights = torch.softmax(torch.einsum("bhtd,bhsd->bhts", _scaled(q), k), dim=-1)
    return torch.einsum("bhts,bhsd->bhtd", weights, v)


def with_baddbmm(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """torch.baddbmm adds a mask to the scores; values by torch.bmm."""
    k, v = _for_each_query_head(q, k, v)
    mask = torch.zeros(q.shape[0] * q.shape[1], q.shape[2], k.shape[2], device=q.device, dtype=q.dtype)
    weights = torch.softmax(torch.baddbmm(mask, _flat(_scaled(q)), _flat(k).transpose(1, 2)), dim=-1)
    return torch.bmm(weights, _flat(v)).view(q.shape)


def with_fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """F.scaled_dot_product_attention over as many key/value heads as query heads."""
    k, v = _for_each_query_head(q, k, v)
    return F.scaled_dot_product_attention(q, k, v)


def with_fused_groups(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """F.scaled_dot_product_attention with enable_gqa: several query heads share a key/value head."""
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def with_flex(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """FlexAttention, eager."""
    from torch.nn.attention.flex_attention import flex_attention

    return flex_attention(q, k, v, enable_gqa=q.shape[1] != k.shape[1])


def _scaled(q: Tensor) -> Tensor:
    return q * q.shape[-1] ** -0.5


def _for_each_query_head(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    group = q.shape[1] // k.shape[1]
    return k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)


def _flat(x: Tensor) -> Tensor:
    return x.reshape(-1, *x.shape[-2:])
