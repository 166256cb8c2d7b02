"""Cast the operands of products that autocast does not handle."""

import torch
from jaxtyping import Float
from torch import Tensor


def to_autocast_dtype(x: Float[Tensor, "*shape"] | None) -> Float[Tensor, "*shape"] | None:
    """Return ``x`` in the dtype of autocast, which handles neither grouped products nor Triton kernels."""
    # torch raises for meta, which has no autocast, and torch 2.11 cannot trace a test for it
    if x is None or x.device.type == "meta" or not torch.is_autocast_enabled(x.device.type):
        return x
    return x.to(torch.get_autocast_dtype(x.device.type))
