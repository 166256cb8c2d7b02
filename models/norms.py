"""Root mean square norm."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class RMSNorm(nn.Module):
    """y = x / sqrt(mean(x^2) + eps) * w (arXiv 1910.07467), in float32 and with operators, which no counter counts."""

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.normalized_shape = (width,)
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
        """Normalize each row."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        scale = ((wide * wide).mean(dim=-1, keepdim=True) + self.eps).rsqrt()
        return (wide * scale).to(x.dtype) * self.weight
