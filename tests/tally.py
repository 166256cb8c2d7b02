"""Live tensor storage of a call, tallied operation by operation: the peak that eager execution reaches.

On a CPU, PyTorch keeps no statistics of its allocator; a dispatch mode sees every tensor that an operation
returns, and a weak reference tells when its storage is gone. What an operation uses inside itself is not seen.
"""

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveStorage(TorchDispatchMode):
    """``trace``: bytes that were live after each allocation while the mode was on, ``known`` tensors left out."""

    def __init__(self, known: Iterable[Tensor]) -> None:
        super().__init__()
        # by address of the storage: views share it
        self._counted = {tensor.untyped_storage()._cdata for tensor in known}
        self.live_bytes = 0
        self.trace: list[int] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor):
                self._count(tensor.untyped_storage())
        return out

    def _count(self, storage: torch.UntypedStorage) -> None:
        address, size = storage._cdata, storage.nbytes()
        if address in self._counted:
            return
        self._counted.add(address)
        self.live_bytes += size
        self.trace.append(self.live_bytes)
        weakref.finalize(storage, self._free, address, size)

    def _free(self, address: int, size: int) -> None:
        self._counted.discard(address)
        self.live_bytes -= size


def peak_bytes(call: Callable[[], Any], known: Iterable[Tensor]) -> int:
    """The most bytes of tensors that ``call`` holds at once beside ``known`` ones.

    On CUDA as the allocator reports it, with its rounding to blocks; else as tallied.
    """
    known = list(known)
    if known[0].is_cuda:
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with LiveStorage(known) as tally:
        call()
    return max(tally.trace, default=0)
