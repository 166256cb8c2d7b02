"""The tensors that a parameter stores, and the shape that it stands for."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass


def local_part(tensor: Tensor) -> Tensor:
    """Return what this rank has of a DTensor; any other tensor itself."""
    return getattr(tensor, "_local_tensor", tensor)


def own_tensor(tensor: Tensor) -> Tensor:
    """Return the local part of a tensor without the wrappers of torch.func: of a batched one, the whole batch."""
    part = local_part(tensor)
    while torch._C._functorch.is_functorch_wrapped_tensor(part):
        part = torch._C._functorch.get_unwrapped(part)
    return part


def represented_shape(tensor: Tensor) -> tuple[int, ...]:
    """Return the shape of the weight that a tensor stands for; that of a packed one is in its ``quant_state``."""
    packed = getattr(tensor, "quant_state", None)
    return tuple(getattr(packed, "shape", None) or tensor.shape)


def stored_tensors(tensor: Tensor) -> list[Tensor]:
    """Return the tensors in memory that hold a weight: quantised values and scales of a subclass, else itself."""
    if is_traceable_wrapper_subclass(tensor) and not tensor.is_nested:
        names, _ = tensor.__tensor_flatten__()
        return [stored for name in names for stored in stored_tensors(getattr(tensor, name))]
    return [tensor, *_attribute_tensors(getattr(tensor, "quant_state", None))]


def is_parameter(tensor: Tensor) -> bool:
    """Return whether a tensor is an nn.Parameter, of a class of its own too."""
    return type(tensor) is nn.Parameter or hasattr(tensor, "_is_param")


def _attribute_tensors(state: object) -> Iterator[Tensor]:
    """Iterate over the tensors among the attributes of an object, and of objects of its class in these."""
    for value in getattr(state, "__dict__", {}).values():
        if isinstance(value, Tensor):
            yield value
        elif type(value) is type(state):
            yield from _attribute_tensors(value)
