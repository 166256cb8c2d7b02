"""Our own count: every dispatched contraction once, the same for every spelling and device (bench.contractions)."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from headcount.bench.contractions.count import right_count
from headcount.bench.counters.base import Reading
from headcount.bench.counters.call_counts import PRODUCT, TORCH, Bill
from headcount.bench.counters.run_context import arguments, device_of, undisturbed
from headcount.bench.trace.events import Event, Trace
from headcount.bench.trace.record import record

NAME = "right"
DEVICE = "meta"
VERIFIED = {"torch": TORCH}
HOOKS = False
ADDS = {}

_PRODUCTS = "bench/contractions/products.py"


def read(model: nn.Module, inputs: Mapping[str, Tensor], *, label: str) -> Reading:
    """One forward pass over the whole batch; ``inputs`` are forward's parameters by name.

    ``by_module`` holds each module's own products, without its submodules'; ``by_operator`` is by kind.
    Raises CounterError, also for an operation that may hold products nobody counts.
    """
    with undisturbed(model, counter=NAME, label=label):
        found = right_count(record(model, arguments(model, inputs)))
    return Reading(
        counter=NAME,
        tool="headcount",
        version=torch.__version__,
        backend="trace",
        device=device_of(inputs),
        macs=found.macs,
        params=sum(parameter.numel() for parameter in model.parameters()),
        by_module=found.ledger.group(lambda entry: entry.path),
        by_operator=found.ledger.group(lambda entry: entry.kind),
        uncounted={},
    )


def bills(trace: Trace) -> list[Bill]:
    """Every contraction once."""
    by_event = right_count(trace, allow_uncounted=True).by_event
    return [
        Bill(index, {PRODUCT: sum(product.macs for _, product in parts)}, f"aten.{trace.events[index].name}", _PRODUCTS)
        for index, parts in by_event.items()
    ]


def missed(trace: Trace, event: Event) -> tuple[str, str]:
    """Never asked: what holds a contraction has a bill."""
    return f"aten.{event.name} is not in its table", _PRODUCTS
