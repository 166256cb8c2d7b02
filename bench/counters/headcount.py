"""headcount's counter: every dispatched contraction once, equal for every formulation and device."""

from collections.abc import Mapping

from torch import Tensor, nn

from headcount.bench.contractions.classify import find_contractions
from headcount.bench.counters.base import PRODUCT, TORCH, CallCount, Reported
from headcount.bench.trace.events import Trace
from headcount.bench.trace.record import record

NAME = "headcount"
DEVICE = "meta"
VERIFIED = {"torch": TORCH}

_PRODUCTS = "bench/contractions/products/"


def read(model: nn.Module, inputs: Mapping[str, Tensor]) -> Reported:
    """Count one forward pass.

    It fails for an unsupported operator.
    """
    by_event, _ = find_contractions(record(model, tuple(inputs.values())))
    # its version is that of torch, which decides which operations run
    return {
        "tool": NAME,
        "macs": sum(product.macs for parts in by_event.values() for _, product in parts),
        "unsupported": {},
    }


def call_counts(trace: Trace) -> list[CallCount]:
    """Return every contraction once."""
    by_event, _ = find_contractions(trace, allow_unsupported=True)
    return [
        CallCount(
            index, {PRODUCT: sum(product.macs for _, product in parts)}, f"aten.{trace.events[index].name}", _PRODUCTS
        )
        for index, parts in by_event.items()
    ]
