"""Rotary positions (arXiv 2104.09864), in the layout of the LLaMA models: element i turns with element i + d_h/2."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.models.shapes import QueryHeads


class Rotary(NamedTuple):
    """cos and sin of position times frequency, for the T positions of a forward."""

    cos: Float[Tensor, "tgt half"]
    sin: Float[Tensor, "tgt half"]


def rotary_table(
    seq_len: int | Tensor,
    head_dim: int,
    theta: float,
    *,
    start: int = 0,
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.float32,
) -> Rotary:
    """Return cos and sin of the angles t / theta^(2i / d_h) of positions t = start … start + T - 1, i = 0 … d_h/2 - 1,
    computed in float32.

    ``seq_len`` is a tensor while torch.jit traces.
    """
    pairs = torch.arange(0, head_dim, 2, device=device, dtype=torch.float32)
    positions = torch.arange(seq_len, device=device) + start
    angles = positions[:, None] * (theta ** (pairs * (-1.0 / head_dim)))[None]
    return Rotary(torch.cos(angles).to(dtype), torch.sin(angles).to(dtype))


def rotate(x: QueryHeads, rotary: Rotary | None) -> QueryHeads:
    """Rotate each pair (x_i, x_(i + d_h/2)) by its angle, in the dtype of ``x``; ``x`` itself without ``rotary``."""
    if rotary is None:
        return x
    first, second = x.chunk(2, dim=-1)
    cos, sin = rotary.cos[:, None], rotary.sin[:, None]
    # under autocast the table is float32 and a projected query bfloat16
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)
