"""What a counter says about one forward pass, and the error for when it says nothing."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headcount.formulas.ledger import MAC_KINDS, Entry, Ledger, Size


class CounterError(RuntimeError):
    """A counter gave no number for a model; the message is one line."""

    exit_code = 1

    def __init__(self, counter: str, label: str, reason: str) -> None:
        super().__init__(f"{counter} did not count {label}: {reason}")


@dataclass(frozen=True)
class Reading:
    """One counter's reading of one forward pass over the whole batch; what the tool cannot say is None.

    ``macs`` is the tool's own total in multiply-accumulates, additions that it bills included.
    ``by_module`` maps module paths ("" is the model) to MACs, each with its submodules' share.
    ``uncounted`` is what the tool itself names as not counted, with its number: operators with their
    occurrences, or module types with the number of such modules.
    """

    counter: str
    tool: str
    version: str
    backend: str
    device: str
    macs: int
    params: int | None
    by_module: dict[str, int] | None
    by_operator: dict[str, int] | None
    uncounted: dict[str, int] | None


def whole(number: Any) -> int:
    """A tool's number as a Python int; ValueError where it is not whole."""
    if int(number) != number:
        raise ValueError(f"{number!r} is not a whole number")
    return int(number)


def macs_from_flops(flops: int) -> int:
    """FLOPs / 2; ValueError where FLOPs are odd."""
    if flops % 2:
        raise ValueError(f"{flops} FLOPs are not twice a number of multiply-accumulates")
    return flops // 2


def added_by_kind(ledger: Ledger, bills: Callable[[Entry], int]) -> dict[str, Size]:
    """What ``bills`` adds for kinds without multiply-accumulates, by kind; kinds that it does not bill are absent."""
    extra = ledger.select(lambda entry: entry.kind not in MAC_KINDS and bills(entry))
    billed: dict[str, Size] = {}
    for entry in extra:
        billed[entry.kind] = billed.get(entry.kind, 0) + bills(entry) * entry.size
    return billed


def unknown_kind(counter: str, entry: Entry) -> ValueError:
    """The error for an entry of a kind that a counter's rules do not know."""
    return ValueError(f"no rule of {counter} for {entry.kind!r} at {entry.path!r}")
