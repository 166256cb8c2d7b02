"""Activation functions that look up torch's at call time, so that counters that patch torch see them."""

from collections.abc import Callable

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

Activation = Callable[[Tensor], Tensor]


def relu(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return max(x, 0)."""
    return F.relu(x)


def gelu(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return x Phi(x), exact (arXiv 1606.08415)."""
    return F.gelu(x)


def gelu_tanh(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return x Phi(x) by the hyperbolic tangent (arXiv 1606.08415)."""
    return F.gelu(x, approximate="tanh")


def silu(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return x sigmoid(x)."""
    return F.silu(x)
