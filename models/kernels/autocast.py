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
    # asking about a device without autocast, such as meta, is an error
    return torch.amp.is_autocast_available(device_type) and torch.is_autocast_enabled(device_type)
