"""Classify the operations of a recorded run: its contractions by kind, and the audit of every operation."""

from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral

from headcount.bench.contractions.audit import COUNTED, NO_CONTRACTION, UNKNOWN, AuditLine, merge_equal_lines
from headcount.bench.contractions.dataflow import is_fill
from headcount.bench.contractions.kinds import Kinds
from headcount.bench.contractions.linalg import Formula, formula_advice
from headcount.bench.contractions.products import find_rule, products
from headcount.bench.contractions.products.product import Product
from headcount.bench.contractions.untraced import find_untraced_tensors
from headcount.bench.contractions.zero_mac_ops import holds_none
from headcount.bench.trace.collector import no_full_gc
from headcount.bench.trace.events import FUNCTION, Event, Trace, tensors_in

ProductsByEvent = Mapping[int, list[tuple[str, Product]]]
"""Kinds and products of the run's contractions, by event."""


class UnsupportedError(RuntimeError):
    """A run contains unsupported operators; ``unsupported`` are their audit lines."""

    def __init__(self, unsupported: tuple[AuditLine, ...]) -> None:
        self.unsupported = unsupported
        lines = "; ".join(line.text() for line in merge_equal_lines(unsupported))
        # data that was computed elsewhere is no operator, and has no formula
        operators = tuple(dict.fromkeys(line.operation for line in unsupported if " " not in line.operation))
        counted = formula_advice(operators, "formula_set={!r}")
        if operators:
            counted += f"formulas={{name: MACs of one call}} counts {', '.join(operators)}, "
        super().__init__(
            f"unsupported operations, which may hold products: {lines}; {counted}allow_unsupported=True leaves them out"
        )


@no_full_gc
def find_contractions(
    trace: Trace,
    formulas: Mapping[str, Formula] | None = None,
    sources: Mapping[str, str] | None = None,
    *,
    allow_unsupported: bool = False,
) -> tuple[ProductsByEvent, tuple[AuditLine, ...]]:
    """Return the contractions of ``trace`` by event, and the audit of its operations and of tensors made untraced.

    ``formulas`` count further operations, and ``sources`` name where they are from. Raises UnsupportedError for
    operations that may hold products and have no rule, unless ``allow_unsupported``.
    """
    found, audit = _classify(trace, formulas or {}, sources or {})
    # one line for all tensors that one operation in one module uses
    untraced = {(name, path): fact for name, path, fact in find_untraced_tensors(trace)}
    audit += [AuditLine(name, UNKNOWN, path, 1, (fact.shape,)) for (name, path), fact in untraced.items()]
    for path, shapes in trace.elsewhere.items():
        audit.append(AuditLine("a module that another thread runs", UNKNOWN, path, 1, shapes))
    unsupported = tuple(line for line in audit if line.state == UNKNOWN)
    if unsupported and not allow_unsupported:
        raise UnsupportedError(unsupported)
    return Kinds(trace, found).found, tuple(audit)


def contraction_parts(trace: Trace) -> list[tuple[str, Product]]:
    """Return each contraction of ``trace`` with its kind, in order; sizes may be symbols. Raises UnsupportedError."""
    found, audit = _classify(trace, {}, {})
    if unsupported := tuple(line for line in audit if line.state == UNKNOWN):
        raise UnsupportedError(unsupported)
    return [pair for pairs in Kinds(trace, found).found.values() for pair in pairs]


def _classify(
    trace: Trace, formulas: Mapping[str, Formula], sources: Mapping[str, str]
) -> tuple[dict[int, list[Product]], list[AuditLine]]:
    """Return the products of operations by event, and an audit line for each operation, state and module.

    ``sources`` name where the formula of an operation is from. A complex convolution runs as three real ones of one
    size. One is counted, as for a complex matrix product.
    """
    found: dict[int, list[Product]] = {}
    calls: dict[tuple[str, str, str], list[Event]] = {}
    real_ones: dict[tuple, int] = {}
    for event in trace.operations():
        parts = _products(trace, event, formulas)
        if parts and event.name in ("convolution", "convolution_backward"):
            call = _complex_call(trace, event)
            if call is not None:
                # Not by shapes: one of the three has no bias.
                key = (event.name, call, *(tuple(part.dims.items()) for part in parts))
                before = real_ones[key] = real_ones.get(key, -1) + 1
                parts = [] if before % 3 else parts
        if parts is not None:
            found[event.index] = parts
        state = COUNTED if parts is not None else NO_CONTRACTION if holds_none(event.name) else UNKNOWN
        calls.setdefault((event.name, event.path, state), []).append(event)
    audit = []
    for (name, path, state), events in calls.items():
        shapes = tuple(fact.shape for fact in tensors_in(events[0].args))
        source = sources.get(name) or find_rule(name)[1]
        audit.append(AuditLine(name, state, path, len(events), shapes, source))
    return found, audit


def _complex_call(trace: Trace, event: Event) -> int | None:
    """Return the call of a complex convolution that contains ``event``, or whose gradient ``event`` computes."""
    call = next((outer for outer in trace.around(event) if outer.what == FUNCTION), None)
    if call is None and event.forward is not None:
        call = trace.events[event.forward]
    made = tensors_in(call.out) if call else ()
    return call.index if any(fact.dtype.startswith("complex") for fact in made) else None


def _products(trace: Trace, event: Event, formulas: Mapping[str, Formula]) -> list[Product] | None:
    if event.name in formulas:
        macs = formulas[event.name](event)
        if not isinstance(macs, Integral) or macs < 0:
            raise ValueError(f"the formula of {event.name} gives {macs!r}, which is no whole number from 0 on")
        return [Product({"i": macs}, tuple(event.tensors()), "contraction")]
    if event.name == "mul" and _is_einsum(trace, event):
        return [Product({"m": event.out.numel, "i": 1}, tuple(event.tensors()))]
    found = products(event)
    if found and event.times != 1:
        return [replace(product, dims={**product.dims, "n": event.times}) for product in found]
    return found


def _is_einsum(trace: Trace, event: Event) -> bool:
    """Return whether ``event`` is the product of an einsum of two operands whose summed indices all have size one.

    A product with a fill, as a mask of ones, is a scaling, as elsewhere.
    """
    event = event if event.forward is None else trace.events[event.forward]
    for call in (event, *trace.around(event)):
        if call.what == FUNCTION and call.name == "einsum" and call.args and isinstance(call.args[0], str):
            inputs, _, result = call.args[0].partition("->")
            first, *others = inputs.split(",")
            # Without an arrow, common indices are summed.
            sums = len(others) == 1 and any(x.isalpha() and x not in result for x in first if x in others[0])
            return sums and not any(is_fill(trace, fact, event.index) for fact in event.tensors())
    return False
