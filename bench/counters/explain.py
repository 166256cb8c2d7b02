"""Explain the difference between a reported count and headcount's as causes that sum to it."""

from dataclasses import dataclass
from types import ModuleType

from headcount.bench.contractions.count import ContractionCount
from headcount.bench.counters.call_counts import PRODUCT, CallCount, total, unverified
from headcount.bench.trace.events import FUNCTION, MODULE, OPERATION, Event, Trace

TWICE, MISSED, ADDED, DIFFERS = "counted twice", "missed", "added", "differs"


@dataclass(frozen=True)
class Cause:
    """``calls`` calls that together change the reported count by ``amount``; ``what`` is one of the four above."""

    what: str
    name: str
    place: str
    calls: int
    amount: int


@dataclass(frozen=True)
class Explanation:
    """The count that the rules predict and the causes of its difference; ``unverified`` names unverified versions."""

    predicted_macs: int
    causes: tuple[Cause, ...]
    unverified: tuple[str, ...]

    def explains(self, macs: int, exact: int) -> bool:
        """Return whether the rules predict ``macs`` and the causes sum to its difference from ``exact``."""
        return macs == self.predicted_macs == exact + sum(cause.amount for cause in self.causes)


def explain(tool: ModuleType, trace: Trace, count: ContractionCount) -> Explanation:
    """Return the causes for which the counter ``tool`` differs from ``count`` on ``trace``."""
    call_counts = tool.call_counts(trace)
    predicted = tool.summed(trace, call_counts) if hasattr(tool, "summed") else total(call_counts)
    found = _Causes(tool, trace, count)
    for call_count in call_counts:
        found.add_call_count(call_count)
    found.add_missing()
    return Explanation(predicted, tuple(found.merged()), tuple(unverified(tool.VERIFIED)))


class _Causes:
    """Match call counts with contractions: the outermost counted call around a contraction covers it."""

    def __init__(self, tool: ModuleType, trace: Trace, count: ContractionCount) -> None:
        self._tool = tool
        self._trace = trace
        self._macs = {index: sum(p.macs for _, p in parts) for index, parts in count.by_event.items()}
        self._within: dict[int, list[int]] = {}
        for index in self._macs:
            for event in (trace.events[index], *trace.around(trace.events[index])):
                self._within.setdefault(event.index, []).append(index)
        self._covered: set[int] = set()
        self._causes: dict[tuple[str, str, str], list[tuple[int, int]]] = {}

    def add(self, what: str, name: str, place: str, amount: int, call: int) -> None:
        """Add ``amount`` to a cause, inside the call of that index; do nothing if it is 0."""
        if amount:
            self._causes.setdefault((what, name, place), []).append((amount, call))

    def add_call_count(self, call_count: CallCount) -> None:
        """Add the differences between a call count and the contractions that it covers."""
        for part, amount in call_count.parts.items():
            if part != PRODUCT:
                self.add(ADDED, f"{part} by {call_count.rule}", call_count.place, amount, call_count.event)
        if call_count.times != 1:
            again = call_count.amount - sum(call_count.parts.values())
            name = f"{call_count.rule}, registered {call_count.times} times"
            self.add(TWICE, name, self._tool.TWICE, again, call_count.event)
        product = call_count.parts.get(PRODUCT)
        if product is None:
            return
        event = self._trace.events[call_count.event]
        within = self._within.get(call_count.event, [])
        new = [index for index in within if index not in self._covered]
        if new:
            self._covered.update(new)
            exact = sum(self._macs[index] for index in new)
            reason = call_count.differs if exact else "one of three real products that make a complex one"
            self.add(DIFFERS, f"{call_count.rule}: {reason}", call_count.place, product - exact, call_count.event)
        elif within or any(outer.index in self._macs for outer in self._trace.around(event)):
            name = f"{call_count.rule} in {self._place_of(event)}"
            self.add(TWICE, name, call_count.place, product, call_count.event)
        else:
            reason = "a call that failed" if event.failed else "where no contraction was dispatched"
            self.add(ADDED, f"{call_count.rule}, {reason}", call_count.place, product, call_count.event)

    def add_missing(self) -> None:
        """Add the contractions that no call count covers."""
        for index, macs in self._macs.items():
            if index not in self._covered:
                event = self._trace.events[index]
                name, place = self._tool.missed(self._trace, event)
                # A call may hold several products: fused attention on meta is two.
                call = next((outer.index for outer in self._trace.around(event) if outer.what == FUNCTION), index)
                self.add(MISSED, name, place, -macs, call)

    def merged(self) -> list[Cause]:
        """Return the causes, those of the same name and place as one."""
        return [
            Cause(what, name, place, len({call for _, call in parts}), sum(amount for amount, _ in parts))
            for (what, name, place), parts in self._causes.items()
        ]

    def _place_of(self, event: Event) -> str:
        """Return the innermost operation or module around a counted call."""
        for outer in self._trace.around(event):
            if outer.what == OPERATION:
                return f"torch's Python for aten.{outer.name}"
            if outer.what == MODULE:
                return outer.name
        return "the model"
