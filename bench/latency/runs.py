"""An arm made ready to call, on the parameters and inputs that it shares with the others of its cell."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from headcount.bench.latency.arms import ArmSpec
from headcount.bench.latency.cells import Cell
from headcount.bench.latency.shared import Shared, cache_bytes


class Run(ABC):
    """``call(i)`` runs the arm once on input set i of ``sets``."""

    def __init__(self, cell: Cell, spec: ArmSpec, shared: Shared) -> None:
        self.cell, self.spec, self.shared = cell, spec, shared
        self.label = f"{spec.name} {spec.arm}"
        self.module = shared.module(spec.config, spec.arm)
        self.inputs = shared.inputs
        self.sets = len(self.inputs)
        # as many bytes as the sets hold together, where they are what rotates
        self.rotated_bytes = self.sets * sum(t.numel() * t.element_size() for t in tensors(self.inputs[0]))
        self.parameters = [p for p in self.module.parameters() if p.requires_grad]

    @abstractmethod
    def call(self, i: int) -> Any:
        """The pass of the cell on input set ``i``."""

    def feeds(self, i: int) -> list[Tensor]:
        """What ``call(i)`` reads and may find other numbers in."""
        return tensors(self.inputs[i])

    @contextmanager
    def altered(self, i: int) -> Iterator[None]:
        """Other numbers, and so another routing, where ``call(i)`` reads; the old ones again afterwards."""
        found = self.feeds(i)
        before = [t.detach().clone() for t in found]
        for tensor, old in zip(found, before, strict=True):
            # beside autograd, which would count a change of what a graph has saved
            tensor.data.copy_(_other(old))
        try:
            yield
        finally:
            for tensor, old in zip(found, before, strict=True):
                tensor.data.copy_(old)

    def arm_used(self) -> str | None:
        """The path that the layers took in their last forward pass; None where they do not say."""
        layers = [layer for layer in self.module.modules() if hasattr(layer, "arm")]
        used = {getattr(layer, "impl_used", None) for layer in layers} - {None}
        return "+".join(sorted(used)) or None


class LayerRun(Run):
    """A bare attention layer on N(0, 1) features, routed as the cell says."""

    def call(self, i: int) -> Tensor | tuple[Tensor, ...]:
        """The output, or the gradients of the input and of all parameters."""
        x = self.inputs[i]
        if self.cell.which == "forward":
            with torch.no_grad():
                return self.module(x)
        return torch.autograd.grad(self.module(x), [x, *self.parameters], self.shared.gradient)


class BackwardRun(LayerRun):
    """The backward pass alone: graphs are kept and walked again and again."""

    def __init__(self, cell: Cell, spec: ArmSpec, shared: Shared) -> None:
        super().__init__(cell, spec, shared)
        self.outputs = [self.module(x) for x in self.inputs]

    def call(self, i: int) -> tuple[Tensor, ...]:
        """The gradients of the input and of all parameters."""
        wanted = [self.inputs[i], *self.parameters]
        return torch.autograd.grad(self.outputs[i], wanted, self.shared.gradient, retain_graph=True)

    def feeds(self, i: int) -> list[Tensor]:
        """The gradient of the output: what the graph has saved must stay."""
        return [self.shared.gradient]


class DecodeRun(LayerRun):
    """One token of each sequence behind the stored ones; caches rotate, so that they are not found in the GPU's own."""

    def __init__(self, cell: Cell, spec: ArmSpec, shared: Shared) -> None:
        super().__init__(cell, spec, shared)
        self.caches = shared.caches(self.module)
        self.sets = len(self.caches)
        self.rotated_bytes = self.sets * cache_bytes(self.caches[0])

    def call(self, i: int) -> Tensor:
        """The output of the new tokens."""
        cache = self.caches[i]
        cache.length = self.cell.seq_len - 1
        with torch.no_grad():
            return self.module(self.inputs[i % len(self.inputs)], cache=cache)

    def feeds(self, i: int) -> list[Tensor]:
        """The new tokens."""
        return [self.inputs[i % len(self.inputs)]]


class ModelRun(Run):
    """A whole model on random tokens, with the cross-entropy of random targets where it is trained."""

    def call(self, i: int) -> Any:
        """The output, or the gradients of all parameters."""
        if self.cell.which == "forward":
            with torch.no_grad():
                return self.module(*self.inputs[i])
        out = self.module(*self.inputs[i])
        return torch.autograd.grad(loss(out, self.inputs[i][-1]), self.parameters, allow_unused=True)


def make_run(cell: Cell, spec: ArmSpec, shared: Shared) -> Run:
    """The arm of ``spec``, ready to call."""
    if cell.subject == "model":
        return ModelRun(cell, spec, shared)
    return {"decode": DecodeRun, "backward": BackwardRun}.get(cell.which, LayerRun)(cell, spec, shared)


def tensors(found: Any) -> list[Tensor]:
    """Every tensor of a result or of an input, in order."""
    parts = found if isinstance(found, tuple | list) else (found,)
    return [part for part in parts if isinstance(part, Tensor)]


def loss(out: Tensor, last: Tensor) -> Tensor:
    """Cross-entropy with the last input as targets, where the output is one distribution for each of its tokens;
    else the mean square."""
    if out.shape[:2] == last.shape:
        return nn.functional.cross_entropy(out.flatten(0, 1).float(), last.flatten())
    return out.float().square().mean()


def _other(x: Tensor) -> Tensor:
    """Numbers of the same range: those of other tokens; of one token alone its own negated, or the id before it."""
    dims = [dim for dim in (0, 1) if dim < x.dim() and x.shape[dim] > 1]
    if dims:
        return x.flip(dims)
    return -x if x.is_floating_point() else x - (x > 0).to(x.dtype)
