"""The difference between a reading and the right count, as causes that sum to it."""

from dataclasses import dataclass
from types import ModuleType

from headcount.bench.contractions.count import RightCount
from headcount.bench.counters.call_counts import PRODUCT, Bill, total, unverified, versions
from headcount.bench.trace.events import FUNCTION, MODULE, OPERATION, Trace

TWICE, MISSED, ADDED, DIFFERS = "billed again", "missed", "added", "differs"


@dataclass(frozen=True)
class Cause:
    """``calls`` calls that together move the reading by ``amount``; ``what`` is one of the four words above."""

    what: str
    name: str
    place: str
    calls: int
    amount: int

    def text(self) -> str:
        """One phrase: amount, what, and where in the tool's source."""
        return f"{self.amount:+,} {self.what}: {self.name}, {self.calls} x [{self.place}]"


@dataclass(frozen=True)
class Explanation:
    """What the rules predict, and why it is not the right count; ``unverified`` names versions without a check."""

    predicted_macs: int
    causes: tuple[Cause, ...]
    unverified: tuple[str, ...]

    def explains(self, reading: int, exact: int) -> bool:
        """Whether the rules give the reading and the causes sum to its difference."""
        return reading == self.predicted_macs == exact + sum(cause.amount for cause in self.causes)


def explain(tool: ModuleType, trace: Trace, right: RightCount) -> Explanation:
    """The causes for which the counter ``tool`` differs from ``right`` on ``trace``."""
    bills = tool.bills(trace)
    predicted = tool.summed(trace, bills) if hasattr(tool, "summed") else total(bills)
    found = _Causes(tool, trace, right)
    for bill in bills:
        found.of_bill(bill)
    found.of_missing()
    return Explanation(predicted, tuple(found.merged()), tuple(unverified(tool.VERIFIED, versions(tool.VERIFIED))))


class _Causes:
    """Bills against contractions: each contraction is covered by the outermost bill around it."""

    def __init__(self, tool: ModuleType, trace: Trace, right: RightCount) -> None:
        self._tool = tool
        self._trace = trace
        self._macs = {index: sum(p.macs for _, p in parts) for index, parts in right.by_event.items()}
        self._within: dict[int, list[int]] = {}
        for index in self._macs:
            for event in (trace.events[index], *trace.around(trace.events[index])):
                self._within.setdefault(event.index, []).append(index)
        self._covered: set[int] = set()
        self._causes: dict[tuple[str, str, str], list[tuple[int, int]]] = {}

    def add(self, what: str, name: str, place: str, amount: int, call: int = -1) -> None:
        """One more event of a cause, inside the call of that index; nothing where it changes nothing."""
        if amount:
            self._causes.setdefault((what, name, place), []).append((amount, call))

    def of_bill(self, bill: Bill) -> None:
        """What a bill adds to the products that it stands for."""
        for part, amount in bill.parts.items():
            if part != PRODUCT:
                self.add(ADDED, f"{part} by {bill.rule}", bill.place, amount, bill.event)
        if bill.times != 1:
            again = bill.amount - sum(bill.parts.values())
            self.add(TWICE, f"{bill.rule}, registered {bill.times} times", self._tool.TWICE, again, bill.event)
        product = bill.parts.get(PRODUCT)
        if product is None:
            return
        within = self._within.get(bill.event, [])
        new = [index for index in within if index not in self._covered]
        if new:
            self._covered.update(new)
            exact = sum(self._macs[index] for index in new)
            reason = bill.differs if exact else "one of three real products that make a complex one"
            self.add(DIFFERS, f"{bill.rule}: {reason}", bill.place, product - exact, bill.event)
        elif within or self._in_contraction(bill):
            self.add(TWICE, f"{bill.rule} in {self._place_of(bill)}", bill.place, product, bill.event)
        else:
            failed = self._trace.events[bill.event].failed
            reason = "a call that failed" if failed else "where no contraction was dispatched"
            self.add(ADDED, f"{bill.rule}, {reason}", bill.place, product, bill.event)

    def of_missing(self) -> None:
        """What no bill stands for."""
        for index, macs in self._macs.items():
            if index not in self._covered:
                event = self._trace.events[index]
                name, place = self._tool.missed(self._trace, event)
                # A call may hold several products: fused attention on meta is two.
                call = next((outer.index for outer in self._trace.around(event) if outer.what == FUNCTION), index)
                self.add(MISSED, name, place, -macs, call)

    def merged(self) -> list[Cause]:
        """Causes of the same name and place as one."""
        return [
            Cause(what, name, place, len({call for _, call in parts}), sum(amount for amount, _ in parts))
            for (what, name, place), parts in self._causes.items()
        ]

    def _in_contraction(self, bill: Bill) -> bool:
        return any(outer.index in self._macs for outer in self._trace.around(self._trace.events[bill.event]))

    def _place_of(self, bill: Bill) -> str:
        """The innermost call around a bill that another bill already stands for."""
        for outer in self._trace.around(self._trace.events[bill.event]):
            if outer.what == OPERATION:
                return f"torch's Python for aten.{outer.name}"
            if outer.what == MODULE:
                return outer.name
        return "the model"
