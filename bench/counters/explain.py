"""Explain why another counter's MACs differ from headcount's: causes whose MACs sum to the difference."""

from collections.abc import Iterator
from types import ModuleType

from headcount.bench.contractions.products.product import ProductsByEvent
from headcount.bench.counters.base import PRODUCT, CallCount, Cause, Explanation, total, unverified
from headcount.bench.counters.rules import subclass_call
from headcount.bench.trace.events import FUNCTION, MODULE, OPERATION, Event, Trace

TWICE, MISSED, ADDED, DIFFERS = "counted twice", "missed", "added", "differs"
"""Kinds of causes; a product that differs is counted with another size."""


def explain(tool: ModuleType, trace: Trace, by_event: ProductsByEvent) -> Explanation:
    """Return what the counter ``tool``, a module of bench.counters, should report for a run, and why.

    ``by_event`` are the run's contractions.
    """
    call_counts = tool.call_counts(trace)
    predicted = tool.sum_counts(trace, call_counts) if hasattr(tool, "sum_counts") else total(call_counts)
    merged: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
    for cause, amount, call in _differences(tool, trace, by_event, call_counts):
        if amount:
            merged.setdefault(cause, []).append((amount, call))
    causes = (
        Cause(*cause, len({call for _, call in parts}), sum(amount for amount, _ in parts))
        for cause, parts in merged.items()
    )
    return Explanation(predicted, tuple(causes), tuple(unverified(tool.VERIFIED)))


def _differences(
    tool: ModuleType, trace: Trace, by_event: ProductsByEvent, call_counts: list[CallCount]
) -> Iterator[tuple[tuple[str, str, str], int, int]]:
    """Yield what, name and place of each difference, its amount and the index of its call.

    The outermost counted call around a contraction covers it.
    """
    macs = {index: sum(product.macs for _, product in parts) for index, parts in by_event.items()}
    within: dict[int, list[int]] = {}
    for index in macs:
        for event in (trace.events[index], *trace.around(trace.events[index])):
            within.setdefault(event.index, []).append(index)
    covered: set[int] = set()
    for one in call_counts:
        event = trace.events[one.event]
        for part, amount in one.parts.items():
            if part != PRODUCT:
                yield (ADDED, f"{part} by {one.rule}", one.place), amount, one.event
        if one.times != 1:
            again = one.amount - sum(one.parts.values())
            yield (TWICE, f"{one.rule}, registered {one.times} times", tool.TWICE), again, one.event
        if PRODUCT not in one.parts:
            continue
        product = one.parts[PRODUCT]
        new = [index for index in within.get(one.event, ()) if index not in covered]
        library = None if new else next((e for e in trace.around(event, OPERATION) if "." in e.name), None)
        if library:
            new = [library.index] if library.index in macs.keys() - covered else []
            name = f"{one.rule}: it sees the product inside {library.name}"
            yield (DIFFERS, name, one.place), product - sum(macs[index] for index in new), one.event
        elif new:
            exact = sum(macs[index] for index in new)
            reason = one.reason if exact else "one of three real products that make a complex one"
            if call := subclass_call(trace, trace.events[new[0]]):
                reason = f"the call of {call.subclass}, not the operations that it runs"
            yield (DIFFERS, f"{one.rule}: {reason}", one.place), product - exact, one.event
        elif one.event in within or any(outer.index in macs for outer in trace.around(event)):
            yield (TWICE, f"{one.rule} in {_place_of(trace, event)}", one.place), product, one.event
        else:
            reason = "a call that failed" if event.failed else "where no contraction was dispatched"
            yield (ADDED, f"{one.rule}, {reason}", one.place), product, one.event
        covered.update(new)
    for index, amount in macs.items():
        if index not in covered:
            event = trace.events[index]
            # A call may hold several products: fused attention on meta is two.
            yield (MISSED, *tool.reason_missed(trace, event)), -amount, next(trace.around(event, FUNCTION), event).index


def _place_of(trace: Trace, event: Event) -> str:
    """Return the innermost operation or module around a counted call."""
    for outer in trace.around(event):
        if outer.what == OPERATION:
            return f"torch's Python for aten.{outer.name}"
        if outer.what == MODULE:
            return outer.name
    return "the model"
