"""What a counter is: a file that reads a forward pass, and says of its readings what they hold.

Each of bench.counters.registry has

    NAME, DEVICE           what it is called, and where its reading is right
    VERIFIED               the versions that what stands in the file was verified for, by distribution
    HOOKS                  whether it sets hooks on modules, by which torch's encoder layer leaves its fast path
    ADDS                   what a reading holds beside multiply-accumulates: how often each element of an entry, by
                           kind of the ledger (a number, or a function of the entry); kinds that are left out are not
                           in a reading
    read(model, inputs)    the tool's CounterResult of one forward pass
    call_counts(trace)     what the tool counts for each call of a recorded pass (bench.counters.call_counts)
    missed(trace, event)   why the tool does not count an operation, and where in its source that is decided

and, where it needs them, ``also(ledger, device)``, additions by name that are no matter of kinds, ``NAMES``, Python
names whose calls it counts, ``summed(trace, call_counts)``, the total where it is not their sum, and ``TWICE``, the
place in its source that counts one call several times.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

from headcount.formulas.ledger import Entry, Ledger, Size

if TYPE_CHECKING:
    from headcount.bench.counters.explain import Explanation


class CounterError(RuntimeError):
    """A counter gave no number for a model; the message is one line."""

    exit_code = 1

    def __init__(self, counter: str, label: str, reason: str) -> None:
        super().__init__(f"{counter} did not count {label}: {reason}")


@dataclass(frozen=True)
class CounterResult:
    """One counter's reading of one forward pass over the whole batch; what the tool cannot say is None.

    ``macs`` is the tool's own total in multiply-accumulates, additions that it counts included.
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


@dataclass(frozen=True)
class Count:
    """One counter's reading beside ``exact``, all in multiply-accumulates; no reading, and the ``reason``, where
    there is none.

    ``predicted_macs`` is what the counter's file says of the ledger, ``additions`` what of it are no
    multiply-accumulates; ``explanation`` is what it says of the recorded calls. None where nobody asked.
    ``why_there``: why it was not counted on the counter's own device.
    """

    counter: str
    exact: int
    reading: CounterResult | None
    reason: str | None = None
    device: str | None = None
    predicted_macs: int | None = None
    additions: Mapping[str, int] = field(default_factory=dict)
    explanation: "Explanation | None" = None
    why_there: str | None = None

    @property
    def macs(self) -> int | None:
        """The reading."""
        return None if self.reading is None else self.reading.macs

    @property
    def difference(self) -> int | None:
        """Reading minus exact."""
        return None if self.reading is None else self.reading.macs - self.exact

    @property
    def explained(self) -> bool:
        """Whether calls of the trace sum to the difference; a counter without a reading needs no explanation."""
        if self.reading is None:
            return True
        return self.explanation is not None and self.explanation.explains(self.reading.macs, self.exact)

    @property
    def agrees(self) -> bool:
        """Whether the reading is what is predicted of the ledger, and of its calls where these are known."""
        return self.disagreement is None

    @property
    def disagreement(self) -> str | None:
        """One phrase where the reading is not what is predicted; a reading that was not taken is."""
        if self.reading is None:
            return None
        by_calls = self.explanation and self.explanation.predicted_macs
        for predicted in (self.predicted_macs, by_calls):
            if predicted not in (None, self.macs):
                return f"reads {self.macs:,}, its rules predict {predicted:,}"
        if self.explanation and not self.explained:
            return f"reads {self.macs:,}, which the calls that it bills do not make of {self.exact:,}"
        return None


def failed_record(counter: str, reason: str) -> dict[str, Any]:
    """The JSON of a counter that gave no reading (bench.counters.readings.as_record)."""
    empty = dict.fromkeys(("macs", "difference", "predicted_macs"))
    return {"counter": counter, **empty, "failed": reason, "explained": True, "unverified": [], "causes": []}


def predict(tool: ModuleType, ledger: Ledger, device: str) -> Size:
    """The reading of ``tool`` for a ledger: its multiply-accumulates once, and :func:`additions`."""
    return ledger.macs + sum(additions(tool, ledger, device).values())


def additions(tool: ModuleType, ledger: Ledger, device: str) -> dict[str, Size]:
    """What a reading of ``tool`` adds to the multiply-accumulates, by kind or by a name of its own."""
    added: dict[str, Size] = {}
    for entry in ledger:
        if times := _times(tool.ADDS.get(entry.kind, 0), entry):
            added[entry.kind] = added.get(entry.kind, 0) + times * entry.size
    return added | (tool.also(ledger, device) if hasattr(tool, "also") else {})


def _times(adds: Any, entry: Entry) -> int:
    return adds(entry) if callable(adds) else adds


def names(tools: Iterable[ModuleType]) -> tuple[str, ...]:
    """The Python names whose calls a trace must hold for the rules of ``tools``."""
    return tuple(dict.fromkeys(name for tool in tools for name in getattr(tool, "NAMES", ())))


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
