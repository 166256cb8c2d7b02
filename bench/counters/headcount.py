"""headcount's counter: every dispatched contraction once, equal for every formulation and device."""

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor, nn

from headcount.bench.contractions.count import count_contractions
from headcount.bench.counters.base import CounterResult
from headcount.bench.counters.call_counts import PRODUCT, TORCH, CallCount
from headcount.bench.counters.run_context import as_result, run_context
from headcount.bench.trace.events import Trace
from headcount.bench.trace.record import record

NAME = "headcount"
DEVICE = "meta"
VERIFIED = {"torch": TORCH}
HOOKS = False
ADDS = {}

_PRODUCTS = "bench/contractions/products.py"


def read(model: nn.Module, inputs: Mapping[str, Tensor], *, label: str) -> CounterResult:
    """Count one forward pass over the whole batch; ``inputs`` are forward's parameters in order.

    Raises CounterError, also for an unsupported operator.
    """
    with run_context(model, counter=NAME, label=label):
        found = count_contractions(record(model, tuple(inputs.values())))
    params = sum(parameter.numel() for parameter in model.parameters())
    # its version is that of torch, which decides which operations run
    return replace(as_result(NAME, "torch", inputs, found.macs, params=params, unsupported={}), tool=NAME)


def call_counts(trace: Trace) -> list[CallCount]:
    """Return every contraction once."""
    by_event = count_contractions(trace, allow_unsupported=True).by_event
    return [
        CallCount(
            index, {PRODUCT: sum(product.macs for _, product in parts)}, f"aten.{trace.events[index].name}", _PRODUCTS
        )
        for index, parts in by_event.items()
    ]
