"""Measure activation memory, saved for backward and at the peak: run a module and add up its live storage.

PyTorch has no statistics of the CPU's allocator. A dispatch mode sees every tensor that an operation returns, and a
finalizer runs when its storage is freed. Temporary storage inside an operation is not counted. On the meta device,
attention is fused in the same calls as on the CPU.
"""

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from headcount.bench.trace.copies import Copier
from headcount.bench.trace.decompositions import fused_on_meta
from headcount.bench.trace.modes import tensors_of
from headcount.bench.trace.record import run_backward
from headcount.bench.trace.shapes import cache_shapes

_FUSED_ATTENTION = ("_scaled_dot_product", "_flash_attention_forward", "_efficient_attention_forward", "flex_attention")
"""Beginnings of the names of operations that return the values first, and then statistics of the softmax."""


class LiveStorage(TorchDispatchMode):
    """Track the bytes of storage that operations allocate while the mode is on.

    ``element_bytes`` is the assumed size of every floating-point element (default: the size in the tensor's dtype) but
    for the statistics of fused softmax, which a kernel stores in a type of its own.
    """

    def __init__(self, element_bytes: int | None) -> None:
        super().__init__()
        self._element_bytes = element_bytes
        self._tracked: set[int] = set()
        """Addresses of storage, which views share."""
        self.live_bytes = 0
        self.peak_bytes = 0
        self._changes: list[tuple[int, int]] = []
        """Address and bytes of each allocation, and bytes below 0 of what is freed, in order."""

    def exclude(self, *tensors: Tensor) -> None:
        """Leave the storage of ``tensors`` out of the count, such as inputs and parameters; they must stay alive."""
        self._tracked.update(tensor.untyped_storage()._cdata for tensor in tensors)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        is_fused = func.__name__.startswith(_FUSED_ATTENTION) and "backward" not in func.__name__
        for number, tensor in enumerate(tensors_of(out)):
            self._count(tensor, None if is_fused and number else self._element_bytes)
        return out

    def _count(self, tensor: Tensor, element_bytes: int | None) -> None:
        storage = tensor.untyped_storage()
        address, size = storage._cdata, storage.nbytes()
        if address in self._tracked:
            return
        if element_bytes and tensor.is_floating_point():
            size = size // tensor.element_size() * element_bytes
        self._tracked.add(address)
        self.live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        self._changes.append((address, size))
        weakref.finalize(storage, self._free, address, size)

    def _free(self, address: int, size: int) -> None:
        self._tracked.discard(address)
        self.live_bytes -= size
        self._changes.append((address, -size))

    def peak_beside(self, tensors: Iterable[Tensor]) -> int:
        """Return the most bytes that were live at once without those of ``tensors``, which are alive."""
        apart: dict[int, int] = {}
        for tensor in tensors:
            address = tensor.untyped_storage()._cdata
            apart[address] = apart.get(address, 0) + tensor.nbytes
        sizes = []
        # an address is used again: the last allocation there is that of the living tensor
        for address, size in reversed(self._changes):
            sizes.append(size - min(apart.pop(address, 0), size) if size > 0 else size)
        return max(accumulate(reversed(sizes)), default=0)


@dataclass(frozen=True)
class Activations:
    """Bytes that are live after the forward pass, its output included, and the most that are live at once."""

    saved_bytes: int
    peak_bytes: int


class _StorageByModule(LiveStorage):
    """Track the storage that is live by the path of the module that runs where it is allocated."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(None)
        self.storages: dict[int, tuple[str, int]] = {}
        self._paths: list[str] = [""]
        for path, module in model.named_modules():
            module.register_forward_pre_hook(lambda *_, path=path: self._paths.append(path))
            module.register_forward_hook(lambda *_: self._leave(), always_call=True)

    def _leave(self) -> None:
        self._paths.pop()

    def _count(self, tensor: Tensor, element_bytes: int | None) -> None:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._tracked:
            self.storages[storage._cdata] = self._paths[-1], storage.nbytes()
        super()._count(tensor, element_bytes)

    def _free(self, address: int, size: int) -> None:
        del self.storages[address]
        super()._free(address, size)


def kept_storages(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return the path of the module and the bytes of each storage that the forward pass of a training step keeps.

    They are in the order of their allocation, the output among them; their sum is ``saved_bytes`` in the types of the
    run.
    """
    with torch.no_grad(), Copier(writable=True) as copier:
        model, (args, kwargs) = copier.model(model), copier.inputs(args, kwargs)
    live = _StorageByModule(model)
    live.exclude(*tensors_of((args, kwargs)), *model.parameters(), *model.buffers())
    with torch.enable_grad(), cache_shapes(model), live, FusedAttention():
        out = model.train()(*args, **kwargs)
    found = list(live.storages.values())
    del out
    return found


class FusedAttention(TorchFunctionMode):
    """Run attention on meta as the fused operation where the CPU does, which stores no scores."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        return (fused_on_meta(function, args, kwargs, only_trained=False) or function)(*args, **kwargs)


def measure_activations(
    model: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    training: bool,
    element_bytes: int | None = None,
    cache_of: Callable[[Any], Iterable[Tensor]] = lambda out: (),
) -> Activations:
    """Return the bytes of activations, without inputs, parameters, buffers and the output's gradient.

    A training step is a forward in training mode and a backward from every output into the parameters. Every
    floating-point number counts ``element_bytes``, by default those of its type. The peak leaves out the tensors that
    ``cache_of`` finds in the output, in the types of the run.
    """
    with torch.no_grad(), Copier(writable=True) as copier:
        model, (args, kwargs) = copier.model(model), copier.inputs(args, kwargs)
    live = LiveStorage(element_bytes)
    live.exclude(*tensors_of((args, kwargs)), *model.parameters(), *model.buffers())
    with torch.set_grad_enabled(training):
        with cache_shapes(model), live, FusedAttention():
            out = model.train(training)(*args, **kwargs)
        saved = live.live_bytes
        if training:
            with cache_shapes(model), live:
                run_backward(model, out, live.exclude)
    return Activations(saved, live.peak_beside(cache_of(out)))
