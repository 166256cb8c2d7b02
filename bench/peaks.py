"""Measure bytes of activations, saved and at the peak: run a layer or a model and add up the storage that is live.

PyTorch has no statistics of the CPU's allocator. A dispatch mode sees every tensor that an operation returns, and a
finalizer runs when its storage is freed. Temporary storage inside an operation is not counted. On meta nothing is
computed, and the numbers are those of the CPU because gathered rows are split as on the CPU.
"""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import ceil

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from headcount.bench.case import Case
from headcount.bench.trace.shapes import cache_shapes
from headcount.models import experts
from headcount.models.build import build, example_inputs
from headcount.models.configs.base import ConfigError

MAX_CHUNKS = 20_000
"""Chunks of gathered matrices in one measurement; more would take minutes."""


class LiveStorage(TorchDispatchMode):
    """Track the bytes of storage that operations allocate while the mode is on.

    ``element_bytes``: of every floating-point number, whatever the type in which the model runs.
    """

    def __init__(self, element_bytes: int) -> None:
        super().__init__()
        self._element_bytes = element_bytes
        self._tracked: set[int] = set()
        """Addresses of storage, which views share."""
        self.live_bytes = 0
        self.peak_bytes = 0

    def exclude(self, *tensors: Tensor) -> None:
        """Leave the storage of ``tensors`` out of the count, such as inputs and parameters; they must stay alive."""
        self._tracked.update(tensor.untyped_storage()._cdata for tensor in tensors)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor):
                self._count(tensor)
        return out

    def _count(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        address, size = storage._cdata, storage.nbytes()
        if address in self._tracked:
            return
        if tensor.is_floating_point():
            size = size // tensor.element_size() * self._element_bytes
        self._tracked.add(address)
        self.live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        weakref.finalize(storage, self._free, address, size)

    def _free(self, address: int, size: int) -> None:
        self._tracked.discard(address)
        self.live_bytes -= size


@dataclass(frozen=True)
class Activations:
    """Bytes that are live after the forward pass, its output included, and the most that are live at once."""

    saved_bytes: int
    peak_bytes: int


def measure_peak(case: Case, **options) -> int:
    """Return the most bytes that are live at once; see :func:`measure`."""
    return measure(case, **options).peak_bytes


def measure(
    case: Case, *, training: bool, element_bytes: int, device: str = "meta", recompute: bool = False
) -> Activations:
    """Return the bytes of activations, without inputs, parameters, buffers and the output's gradient.

    A training step is a forward in training mode and a backward into the parameters, without auxiliary losses or
    masks. The model runs in float32, and every floating-point number counts ``element_bytes``. With ``recompute``
    every repeated layer keeps its input only, and runs again in backward. Raises ConfigError for a case that cannot
    run or would take minutes.
    """
    case.check_runs()
    model = build(case.config, device=device, initialise=False).train(training)
    inputs = example_inputs(case.config, case.lengths, device=device)
    if case.lengths.get("src_len") == case.lengths.get("tgt_len"):
        # a layer that attends to itself has one input
        inputs.pop("key", None)
    if recompute:
        _recompute_layers(model)
    live = LiveStorage(element_bytes)
    live.exclude(*inputs.values(), *model.parameters(), *model.buffers())
    with _split_rows(element_bytes), cache_shapes(model), torch.set_grad_enabled(training):
        with live:
            out = model(**inputs)
        saved = live.live_bytes
        if training:
            gradient = torch.ones_like(out)
            live.exclude(gradient)
            with live:
                out.backward(gradient)
    return Activations(saved, live.peak_bytes)


def _recompute_layers(model: nn.Module) -> None:
    """Let each element of the innermost lists of modules, the repeated layers, run under checkpoint."""
    for layers in [module for module in model.modules() if isinstance(module, nn.ModuleList)]:
        for layer in layers:
            if not any(isinstance(part, nn.ModuleList) for part in layer.modules()):
                layer.forward = partial(checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False)


@contextmanager
def _split_rows(element_bytes: int) -> Iterator[None]:
    """Split gathered rows on every device as the CPU splits those of numbers of ``element_bytes``."""
    chunks = 0

    def rows_per_chunk(rows: int, gathered: int) -> int:
        nonlocal chunks
        size = max(1, experts.GATHERED_BYTES // (gathered * element_bytes))
        chunks += ceil(rows / size)
        if chunks > MAX_CHUNKS:
            raise ConfigError(f"the reference gathers matrices in more than {MAX_CHUNKS:,} chunks")
        return size

    token = experts.CHUNK_RULE.set(rows_per_chunk)
    try:
        yield
    finally:
        experts.CHUNK_RULE.reset(token)
