"""Copies of a module and its inputs on another device, with or without values."""

import copy
import logging
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses import fake_tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map_only

from headcount.bench.counting.tools import ModuleCall
from headcount.bench.trace.modes import tensors_of
from headcount.bench.trace.shapes import fake

META = "meta"
MAX_DRAWN = 2**24
"""The most integers that one operation makes of drawn numbers: those of 100,000 tokens with 128 experts."""


def devices_of(call: ModuleCall) -> list[str]:
    """Return the types of the devices of a module's parameters and inputs; the CPU where there are none."""
    module, *inputs = call
    return sorted({tensor.device.type for tensor in (*module.parameters(), *tensors_of(inputs))} or {"cpu"})


def stored_bytes(call: ModuleCall) -> int:
    """Return the bytes of weights, buffers and inputs, shared ones once."""
    module, *inputs = call
    stored = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers(), *tensors_of(inputs))}
    return sum(map(_bytes, stored.values()))


def _bytes(tensor: Tensor) -> int:
    if tensor.layout is torch.sparse_coo:
        return tensor._values().nbytes + tensor._indices().nbytes
    return tensor.nbytes


def on_meta(call: ModuleCall) -> ModuleCall:
    """Return a copy of a module and its inputs without values."""
    return convert_call(call, lambda tensor: tensor.to(META))


def with_zeros(call: ModuleCall) -> ModuleCall:
    """Return a module and its inputs with zeros on the CPU in place of tensors on meta."""
    if META not in devices_of(call):
        return call
    return convert_call(call, lambda tensor: torch.zeros_like(tensor, device="cpu") if tensor.is_meta else tensor)


def convert_call(call: ModuleCall, convert: Callable[[Tensor], Tensor]) -> ModuleCall:
    """Return a copy of a module, as copy_module makes it, and its inputs, with converted tensors."""
    module, *inputs = call
    return copy_module(module, convert), *tree_map_only(Tensor, convert, inputs)


def copy_module(module: nn.Module, convert: Callable[[Tensor], Tensor]) -> nn.Module:
    """Return a copy with converted tensors, and the same shared and the same frozen parameters."""
    memo: dict[int, Any] = {}
    for parameter in module.parameters():
        memo[id(parameter)] = _parameter(convert(parameter.detach()), parameter.requires_grad)
    for buffer in module.buffers():
        memo[id(buffer)] = convert(buffer.detach())
    with _Converted(convert):
        copied = copy.deepcopy(module, memo)
    if not isinstance(copied, nn.Module):
        raise TypeError(f"the __deepcopy__ of {type(module).__name__} returns no module, but {type(copied).__name__}")
    return copied


class _Converted(TorchFunctionMode):
    """Convert, of the tensors of a copied module that are no parameters or buffers, those that Python does not copy.

    They have no values, as tables of positions in a list, or are computed, as weights of torch.nn.utils.weight_norm.
    """

    def __init__(self, convert: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self._convert = convert

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is Tensor.__deepcopy__ and (args[0].is_meta or not args[0].is_leaf):
            tensor, memo = args
            memo[id(tensor)] = self._convert(tensor.detach()).requires_grad_(tensor.requires_grad)
            return memo[id(tensor)]
        return function(*args, **(kwargs or {}))


def _parameter(tensor: Tensor, requires_grad: bool) -> Tensor:
    """Return a new tensor as a parameter."""
    if type(tensor) is not fake_tensor.FakeTensor:
        return nn.Parameter(tensor, requires_grad)
    # torch would detach it in its mode, which then refers to it: code that swaps tensors refuses such a one
    parameter: Any = tensor.requires_grad_(requires_grad)
    parameter._is_param = True
    return parameter


_INDEXED_BY_MASK = (
    torch.ops.aten.index.Tensor, torch.ops.aten._unsafe_index.Tensor, torch.ops.aten.index_put.default,
    torch.ops.aten.index_put_.default, torch.ops.aten._unsafe_index_put.default,
)  # fmt: skip


class FakeWeights(fake_tensor.FakeTensorMode):
    """Run operations on tensors without values, but take the positions that a mask with values selects.

    What makes integers of numbers without values, as a router that chooses experts, gets numbers that are drawn
    between 0 and 1; ``has_drawn`` says so. Integers have values, so that code may read how many tokens an expert has,
    but for more than MAX_DRAWN at once.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(allow_non_fake_inputs=True)
        # its weak references to weights would keep these from being converted
        self.fake_tensor_converter.set_tensor_memo = lambda *_: None
        self.has_drawn = False
        self._generator = torch.Generator().manual_seed(seed)

    def dispatch(self, func, types, args=(), kwargs=None):
        if func in _INDEXED_BY_MASK:
            tensor, indices, *rest = args
            args = (tensor, _positions(indices), *rest)
        try:
            out = super().dispatch(func, types, args, kwargs or {})
        except (fake_tensor.DataDependentOutputException, fake_tensor.DynamicOutputShapeException):
            if not _without_values((args, kwargs)):
                raise
            return self._draw(func, args, kwargs or {})
        integers = sum(leaf.numel() for leaf in tensors_of(out) if not is_real(leaf))
        is_drawn = 0 < integers <= MAX_DRAWN and _without_values((args, kwargs))
        return self._draw(func, args, kwargs or {}) if is_drawn else out

    def _draw(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return the result of an operation on drawn numbers: integers with their values, other tensors without."""
        self.has_drawn = True

        def draw(tensor: Tensor) -> Tensor:
            if not isinstance(tensor, fake_tensor.FakeTensor):
                return tensor
            return torch.rand(tensor.shape, dtype=tensor.dtype, generator=self._generator)

        with _disable_current_modes():
            out = func(*tree_map_only(Tensor, draw, args), **tree_map_only(Tensor, draw, kwargs))
        return tree_map_only(Tensor, lambda one: self.without_values(one) if is_real(one) else one, out)

    def without_values(self, tensor: Tensor) -> fake_tensor.FakeTensor:
        """Return a tensor of this mode that says that it is on the CPU."""
        return fake(self, tensor.to(META), torch.device("cpu"))


def is_real(tensor: Tensor) -> bool:
    """Return whether the elements of a tensor are no integers: these decide how many times something runs."""
    return tensor.is_floating_point() or tensor.is_complex()


def _without_values(inputs: Any) -> bool:
    """Return whether tensors of ``inputs`` have no values, and all of these are numbers that can be drawn."""
    fakes = [tensor for tensor in tensors_of(inputs) if isinstance(tensor, fake_tensor.FakeTensor)]
    return bool(fakes) and all(map(is_real, fakes))


def _positions(indices: Iterable[Tensor | None]) -> list[Tensor | None]:
    """Return the indices with the positions of their True elements in place of masks with values."""
    found: list[Tensor | None] = []
    for index in indices:
        is_mask = index is not None and index.dtype in (torch.bool, torch.uint8)
        if is_mask and not index.is_meta and not isinstance(index, fake_tensor.FakeTensor):
            with _disable_current_modes():
                found += index.nonzero().unbind(-1)
        else:
            found.append(index)
    return found


def with_fake_weights(call: ModuleCall, mode: FakeWeights) -> ModuleCall:
    """Return a copy of a module whose weights have a shape and a type alone, and its inputs, which have values."""
    module, args, kwargs = call
    # the mode is not entered: tensors made in forward have values
    copied = copy_module(module, lambda one: mode.without_values(one) if one.is_meta or is_real(one) else one.clone())
    # torch logs the traceback of what is reported here, and its copies of fake buffers warn
    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor")
    return copied, args, kwargs
