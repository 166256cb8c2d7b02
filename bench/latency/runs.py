"""Runs: an implementation ready to call, on the parameters and inputs that it shares with the others of its case."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from headcount.bench.latency.case_tensors import CaseTensors
from headcount.bench.latency.implementations import ImplSpec
from headcount.bench.latency.timing_cases import TimingCase


class Run:
    """An implementation on its inputs: ``call(i)`` runs it once on input set i of ``sets``, each of ``set_bytes``.

    A layer runs on N(0, 1) features with the routing of the case, a model on random tokens.
    """

    def __init__(self, case: TimingCase, spec: ImplSpec, shared: CaseTensors) -> None:
        self.case, self.spec, self.shared = case, spec, shared
        self.trains = case.which == "both"
        self.module = shared.module(spec.config, spec.impl)
        self.inputs = shared.inputs
        self.sets = len(self.inputs)
        self.set_bytes = sum(t.nbytes for t in tensors(self.inputs[0]))
        self.parameters = [p for p in self.module.parameters() if p.requires_grad]

    def call(self, i: int) -> Any:
        """Return the output, or the gradients of a layer's input and of all parameters; a model's are of its loss."""
        inputs = self.changeable_inputs(i)
        with torch.set_grad_enabled(self.trains):
            out = self.module(*inputs)
        if not self.trains:
            return out
        if self.case.subject == "model":
            return torch.autograd.grad(loss(out, inputs[-1]), self.parameters, allow_unused=True)
        return torch.autograd.grad(out, [*inputs, *self.parameters], self.shared.gradient)

    def changeable_inputs(self, i: int) -> list[Tensor]:
        """Return the tensors that ``call(i)`` reads and whose values may change."""
        return tensors(self.inputs[i % len(self.inputs)])

    @contextmanager
    def other_inputs(self, i: int) -> Iterator[None]:
        """Replace the values that ``call(i)`` reads, and so the routing, inside the block."""
        found = self.changeable_inputs(i)
        before = [t.detach().clone() for t in found]
        for tensor, old in zip(found, before, strict=True):
            # through .data, because autograd refuses to use saved tensors that were changed
            tensor.data.copy_(_permute(old))
        try:
            yield
        finally:
            for tensor, old in zip(found, before, strict=True):
                tensor.data.copy_(old)

    def impl_used(self) -> str | None:
        """Return the path that the layers took in their last forward pass; None where they do not record it."""
        used = {getattr(layer, "impl_used", None) for layer in self.module.modules()} - {None}
        return "+".join(sorted(used)) or None


class DecodeRun(Run):
    """Decode one token of each sequence after the cached ones; caches rotate so that none is in the L2 cache."""

    def __init__(self, case: TimingCase, spec: ImplSpec, shared: CaseTensors) -> None:
        super().__init__(case, spec, shared)
        self.caches = shared.caches(self.module)
        self.sets = len(self.caches)
        self.set_bytes = self.caches[0].key.nbytes + self.caches[0].value.nbytes

    def call(self, i: int) -> Tensor:
        """Return the output of the new tokens."""
        cache = self.caches[i]
        cache.length = self.case.seq_len - 1
        with torch.no_grad():
            return self.module(*self.changeable_inputs(i), cache=cache)


def make_run(case: TimingCase, spec: ImplSpec, shared: CaseTensors) -> Run:
    """Return the run of ``spec``."""
    return (DecodeRun if case.which == "decode" else Run)(case, spec, shared)


def tensors(found: Any) -> list[Tensor]:
    """Return every tensor of a result or of an input, in order."""
    parts = found if isinstance(found, tuple | list) else (found,)
    return [part for part in parts if isinstance(part, Tensor)]


def loss(out: Tensor, last: Tensor) -> Tensor:
    """Return the cross-entropy with the last input as targets where the output is a distribution for each token, else
    the mean square."""
    if out.shape[:2] == last.shape:
        return nn.functional.cross_entropy(out.flatten(0, 1).float(), last.flatten())
    return out.float().square().mean()


def _permute(x: Tensor) -> Tensor:
    """Return values of the same range: other tokens' values; for a single token its negation, or the previous id."""
    dims = [dim for dim in (0, 1) if dim < x.dim() and x.shape[dim] > 1]
    if dims:
        return x.flip(dims)
    return -x if x.is_floating_point() else x - (x > 0).to(x.dtype)
