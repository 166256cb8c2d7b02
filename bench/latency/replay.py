"""Record what a model's blocks read and its routers select, and replay it in the reference.

Each block reads given inputs, so that rounding errors do not add up over its depth. The reference runs with the experts
that an implementation selected; its own selection is compared.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from headcount.models import losses
from headcount.models.kernels.selection import Selectable

Given = Sequence[Mapping[int, Tensor]]
"""What each block reads of the last sequence, in the order of the calls: the tensors that have a gradient in training,
by their place among the arguments."""
MARGIN = {"float64": 2.0**-40, "float32": 2.0**-18, "float16": 2.0**-9, "bfloat16": 2.0**-7}
"""Distance in float64 between the K-th score and the next from which rounding cannot change the selection."""
RATIO = 32
"""Times the margin: by what share of it, because a logit of 16 is rounded by sixteen times as much as one of 1."""

_TOPK = (torch.topk, torch.Tensor.topk)


# Blocks


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


# Routing


class RoutingRecorder(TorchFunctionMode):
    """Mode that records the indices of each topk, and which of torch's kernels the fused attention core would take."""

    def __init__(self) -> None:
        super().__init__()
        self.chosen: list[Tensor] = []
        self.backends: dict[str, None] = {}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Call ``func``."""
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            # the kernel that torch selects for such a call
            self.backends[torch.nn.attention.SDPBackend(torch._fused_sdp_choice(*args, **kwargs)).name.lower()] = None
        out = func(*args, **kwargs)
        if func in _TOPK:
            self.chosen.append(out[1].detach())
        return out


class RoutingReplay(TorchFunctionMode):
    """Mode that replaces the result of every topk by the given ``indices``, in the order of the calls.

    ``rows`` selects tokens of indices that were recorded for more. ``counts`` are the selections as ``tokens``, those
    that rounding cannot change as ``clear``, and those of them that differ from the K largest scores as ``other``.
    """

    def __init__(self, indices: Sequence[Tensor], margin: float, rows: Sequence[int] = ()) -> None:
        super().__init__()
        self.indices, self.margin, self.rows = list(indices), margin, list(rows)
        self.counts = Counter(tokens=0, clear=0, other=0)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Call ``func``."""
        if func not in _TOPK or not self.indices:
            return func(*args, **(kwargs or {}))
        scores, top_k = args[0], args[1]
        indices = self.indices.pop(0).to(scores.device)
        if indices.shape[1] != scores.shape[1]:
            indices = indices[:, self.rows]
        self._compare(scores.detach(), top_k, indices)
        return scores.gather(-1, indices), indices

    def _compare(self, scores: Tensor, top_k: int, indices: Tensor) -> None:
        best = torch.topk(scores, min(top_k + 1, scores.shape[-1]), dim=-1)
        clear = torch.ones_like(best.values[..., 0], dtype=torch.bool)
        if top_k < scores.shape[-1]:
            last, next_one = best.values[..., top_k - 1], best.values[..., top_k]
            gap = last - next_one
            clear = (gap > self.margin) & (gap > RATIO * self.margin * last.abs())
        own = best.indices[..., :top_k].sort(-1).values
        other = (indices.sort(-1).values != own).any(-1) & clear
        self.counts.update(tokens=clear.numel(), clear=int(clear.sum()), other=int(other.sum()))


def trace_routing(module: nn.Module, run: Callable[[], Any]) -> tuple[Any, list[Tensor], list[str]]:
    """Return the result of ``run``, the selections of the routers of ``module``, and the kernels of the fused core.

    Selections are those that routers record, in the order of the layers, or those of ``torch.topk`` where none does.
    """
    routers = [layer.router for _, layer in losses.routed_modules(module)]
    losses.record_routing(module)
    try:
        with RoutingRecorder() as seen:
            found = run()
        recorded = [router.recorded.indices.detach() for router in routers if router.recorded is not None]
    finally:
        losses.record_routing(module, False)
        for router in routers:
            # a stored routing would keep its autograd graph
            router.recorded = None
    return found, recorded or seen.chosen, list(seen.backends)
