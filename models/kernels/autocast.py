"""Cast the operands of products that autocast does not handle."""

import torch
from jaxtyping import Float
from torch import Tensor


def lowered(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return ``x`` in the dtype of autocast, which handles neither grouped products nor Triton kernels."""
    if not _autocast(x.device.type):
        return x
    return x.to(torch.get_autocast_dtype(x.device.type))


def _autocast(device_type: str) -> bool:
    # asking about meta, which has none, is an error; and torch 2.11 traces no question whether a device has one
    return device_type != "meta" and torch.is_autocast_enabled(device_type)
