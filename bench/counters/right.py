"""Our own count: every dispatched contraction once, the same for every spelling and device (bench/right)."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from headcount.bench.contractions.count import right_count
from headcount.bench.counters.reading import Reading, added_by_kind
from headcount.bench.counters.undisturbed import arguments, device_of, undisturbed
from headcount.bench.trace.record import record
from headcount.formulas.ledger import MAC_KINDS, Entry, Ledger, Size

NAME = "right"
DEFAULT_DEVICE = "meta"
VERIFIED = {"torch": "2.13"}


def count(model: nn.Module, inputs: Mapping[str, Tensor], *, label: str) -> Reading:
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


def bills(entry: Entry) -> int:
    """1 for every kind with multiply-accumulates, 0 for the others."""
    return 1 if entry.kind in MAC_KINDS else 0


def predict(ledger: Ledger, device: str) -> Size:
    """The ledger's multiply-accumulates."""
    return ledger.billed(bills)


def additions(ledger: Ledger, device: str) -> dict[str, Size]:
    """Nothing."""
    return added_by_kind(ledger, bills)
