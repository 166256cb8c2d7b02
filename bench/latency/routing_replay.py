"""Record the experts that routers select, and replay them in the reference, whose own selection is compared."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from headcount.models import losses

MARGIN = {"float64": 2.0**-40, "float32": 2.0**-18, "float16": 2.0**-9, "bfloat16": 2.0**-7}
"""Distance in float64 between the K-th score and the next from which rounding cannot change the selection."""
RATIO = 32
"""Times the margin: by what share of it, because a logit of 16 is rounded by sixteen times as much as one of 1."""

_TOPK = (torch.topk, torch.Tensor.topk)


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
            self.backends[backend_of(args, kwargs)] = None
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


def backend_of(args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    """Return the kernel that torch selects for a call of the fused core."""
    return torch.nn.attention.SDPBackend(torch._fused_sdp_choice(*args, **kwargs)).name.lower()
