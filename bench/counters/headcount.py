"""headcount's counter: every dispatched contraction once, equal for every formulation and device."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from headcount.bench.contractions.count import count_contractions
from headcount.bench.counters.base import CounterResult
from headcount.bench.counters.call_counts import PRODUCT, TORCH, CallCount
from headcount.bench.counters.run_context import arguments, device_of, run_context
from headcount.bench.trace.events import Trace
from headcount.bench.trace.record import record

NAME = "headcount"
DEVICE = "meta"
VERIFIED = {"torch": TORCH}
HOOKS = False
ADDS = {}

_PRODUCTS = "bench/contractions/products.py"


def read(model: nn.Module, inputs: Mapping[str, Tensor], *, label: str) -> CounterResult:
    """Count one forward pass over the whole batch; ``inputs`` are forward's parameters by name.

    Raises CounterError, also for an unsupported operator.
    """
    with run_context(model, counter=NAME, label=label):
        found = count_contractions(record(model, arguments(model, inputs)))
    return CounterResult(
        counter=NAME,
        tool="headcount",
        version=torch.__version__,
        device=device_of(inputs),
        macs=found.macs,
        params=sum(parameter.numel() for parameter in model.parameters()),
        unsupported={},
    )


def call_counts(trace: Trace) -> list[CallCount]:
    """Return every contraction once."""
    by_event = count_contractions(trace, allow_unsupported=True).by_event
    return [
        CallCount(
            index, {PRODUCT: sum(product.macs for _, product in parts)}, f"aten.{trace.events[index].name}", _PRODUCTS
        )
        for index, parts in by_event.items()
    ]
