"""What autocast would do to the operands of products that it does not know."""

import torch
from jaxtyping import Float
from torch import Tensor


def lowered(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """``x`` in the dtype that autocast gives the operands of a product; it knows neither grouped products nor ours."""
    if not _autocast(x.device.type):
        return x
    return x.to(torch.get_autocast_dtype(x.device.type))


def _autocast(device_type: str) -> bool:
    # asking about meta, which has none, is an error; and torch 2.11 traces no question whether a device has one
    return device_type != "meta" and torch.is_autocast_enabled(device_type)
