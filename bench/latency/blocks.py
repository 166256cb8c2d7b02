"""Run a model block by block: each block reads given inputs, so that rounding errors do not add up over its depth."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from headcount.models.kernels.selection import Selectable

Given = Sequence[Mapping[int, Tensor]]
"""What each block reads of the last sequence, in the order of the calls: the tensors that have a gradient in training,
by their place among the arguments."""


def find_blocks(model: nn.Module) -> list[nn.Module]:
    """Return the innermost repeated parts of ``model`` that hold an attention layer."""
    listed = [entry for module in model.modules() if isinstance(module, nn.ModuleList) for entry in module]
    holders = [entry for entry in listed if any(isinstance(module, Selectable) for module in entry.modules())]
    return [holder for holder in holders if {*holder.modules()} & {*holders} == {holder}]


@contextmanager
def _block_inputs(model: nn.Module, given: Given = ()) -> Iterator[tuple[list[dict[int, Tensor]], list[Tensor]]]:
    """Record what the blocks of ``model`` receive in the block of code; ``given`` replaces it in their last sequence.

    Yields the tensors of the last sequence by call, and the leaves of autograd that are read instead.
    """
    received: list[dict[int, Tensor]] = []
    replaced: list[Tensor] = []

    def hook(block: nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        leaves, spec = tree_flatten((args, kwargs))
        values = given[len(received)] if given else {}
        places = values or [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and leaf.requires_grad]
        received.append({i: leaves[i][-1:] for i in places})
        for i, value in values.items():
            leaf = value.to(leaves[i]).detach().requires_grad_(torch.is_grad_enabled())
            replaced.append(leaf)
            leaves[i] = torch.cat([leaves[i][:-1], leaf]) if len(leaves[i]) > 1 else leaf
        return tree_unflatten(leaves, spec)

    handles = [block.register_forward_pre_hook(hook, with_kwargs=True) for block in find_blocks(model)]
    try:
        yield received, replaced
    finally:
        for handle in handles:
            handle.remove()


def trace_blocks(model: nn.Module, inputs: Sequence[Tensor]) -> Given:
    """Return what each block of ``model`` reads in a forward pass."""
    with torch.enable_grad(), _block_inputs(model) as (received, _):
        model(*inputs)
    return [{i: tensor.detach().clone() for i, tensor in tensors.items()} for tensors in received]


def result_names(model: nn.Module, given: Given) -> list[str]:
    """Return what each result of :func:`run_blocks` with gradients is; those of a forward pass come first."""
    reads = [f"what block {number} reads" for number, tensors in enumerate(given, 1) for _ in tensors]
    gradients = [f"the gradient of {what}" for what in reads]
    return [*reads, "the output", *gradients, *(f"the gradients of {path}" for path in _parts(model))]


def run_blocks(model: nn.Module, *inputs: Tensor, given: Given, gradients: bool = False) -> list[Tensor]:
    """Return what each block of ``model`` would read, and the output, of the last sequence; blocks read ``given``.

    With ``gradients`` also those of what the blocks read, and of the parameters of each part, where the gradient of
    every result is drawn, so that sums over tokens do not cancel: each depends on one block alone.
    """
    with torch.set_grad_enabled(gradients), _block_inputs(model, given) as (received, replaced):
        out = model(*inputs)[-1:]
    results = [tensor for tensors in received for tensor in tensors.values()] + [out]
    if not gradients:
        return results
    parts = _parts(model).values()
    wanted = [*replaced, *(parameter for part in parts for parameter in part)]
    found = iter(torch.autograd.grad(results, wanted, list(map(_normals, results)), materialize_grads=True))
    of_inputs = [next(found) for _ in replaced]
    of_parts = [torch.cat([next(found).flatten() for _ in part]) for part in parts]
    return [*(one.detach() for one in results), *of_inputs, *of_parts]


def _parts(model: nn.Module) -> dict[str, list[nn.Parameter]]:
    """Return the trained parameters of each attention layer, of each block without it, and of the rest, by path."""
    blocks = {*find_blocks(model)}
    paths = [path for path, module in model.named_modules() if isinstance(module, Selectable) or module in blocks]
    parts: dict[str, list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            holders = [path for path in paths if name.startswith(f"{path}.")]
            parts.setdefault(max(holders, key=len, default="the other modules"), []).append(parameter)
    return parts


def _normals(like: Tensor) -> Tensor:
    """Return the same normally distributed numbers for every tensor of the shape of ``like``."""
    return torch.randn(like.shape, generator=torch.Generator().manual_seed(0)).to(like)
