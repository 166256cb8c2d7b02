"""PyTorch's own counter, torch.utils.flop_counter.FlopCounterMode: a dispatch mode that counts FLOPs.

Composite operations are taken apart first (torch/utils/flop_counter.py:1050-1055). Its table is :729-751; every
operation that is not in it is 0 without a warning, grouped products among them, and before torch 2.15 fused attention
on the CPU. MACs are its FLOPs / 2, forward and backward. The rules are torch's own formulas; the other places are in
the torch 2.13 sources.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import cache

import torch
from torch import Tensor, nn
from torch._ops import OpOverloadPacket
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from headcount.bench.contractions.products.libraries import formula_flops, on_meta
from headcount.bench.counters import rules
from headcount.bench.counters.base import PRODUCT, TORCH, CallCount, Reported, macs_from_flops
from headcount.bench.trace.events import OPERATION, Event, Trace
from headcount.bench.trace.modes import is_composite
from headcount.bench.trace.shapes import cache_shapes

NAME = "torch"
DEVICE = "meta"
VERIFIED = {"torch": TORCH}
TAKEN_APART = "torch/utils/flop_counter.py:1050-1055"
ADDS = {}
"""addmm and convolution leave the bias out (torch/utils/flop_counter.py:88-90, 131-178)."""


def read(model: nn.Module, inputs: Mapping[str, Tensor]) -> Reported:
    """Count one forward pass.

    MACs are its FLOPs / 2. It does not report what it did not count: an operator without a formula is 0 without
    a warning.
    """
    with cache_shapes(model), FlopCounterMode(display=False) as mode:
        model(*inputs.values())
    return {"macs": macs_from_flops(mode.get_total_flops())}


def _formulas() -> dict[str, Callable[..., int]]:
    """Return torch's formulas by the name of the operation. Before torch 2.15 higher-order ones are not called."""
    return {
        str(operation).removeprefix("aten."): formula
        for operation, formula in flop_registry.items()
        if isinstance(operation, OpOverloadPacket) or torch.__version__ >= (2, 15)
    }


@cache
def _place(formula: Callable[..., int]) -> str:
    """Return the file and the lines of a formula."""
    lines, first = inspect.getsourcelines(inspect.unwrap(formula))
    return f"{formula.__module__.replace('.', '/')}.py:{first}-{first + len(lines) - 1}"


def call_counts(trace: Trace) -> list[CallCount]:
    """Return what torch's own formula counts for each operation of a run, in order."""
    out, formulas = [], _formulas()
    for event in trace.events:
        if event.what != OPERATION or event.failed or event.composite and not event.subclass:
            continue
        if rules.subclass_call(trace, event) not in (None, event):
            continue
        name = f"aten.{event.name}"
        if formula := formulas.get(event.name):
            flops = formula_flops(formula, event)
            reason = rules.reason(event) or f"{formula.__name__} of the shapes"
            out.append(CallCount(event.index, {PRODUCT: macs_from_flops(flops)}, name, _place(formula), reason=reason))
        elif event.subclass and (flops := _flops_of_parts(event)):
            out.append(CallCount(event.index, {PRODUCT: macs_from_flops(flops)}, name, TAKEN_APART))
    return out


def _flops_of_parts(event: Event) -> int:
    """Return what a composite operation counts in its parts, which the subclass that is called with it never sees."""
    packet = getattr(torch.ops.aten, event.name, None)
    if packet is None or not any(is_composite(getattr(packet, overload)) for overload in packet.overloads()):
        return 0
    with FlopCounterMode(display=False) as mode:
        packet(*on_meta(event.args), **on_meta(event.kwargs))
    return mode.get_total_flops()


def reason_missed(trace: Trace, event: Event) -> tuple[str, str]:
    """Return why an operation is not counted, and where in torch that is decided."""
    event = rules.subclass_call(trace, event) or event
    return f"{rules.full_name(event.name)} is not in its table", "torch/utils/flop_counter.py:729-751"
