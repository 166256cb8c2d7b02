"""Count the contractions of a recorded run: every contraction once, every other operation classified."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from html import escape
from numbers import Integral
from typing import TYPE_CHECKING, Any

from torch import nn

from headcount.bench.contractions import costs, summary
from headcount.bench.contractions.collectives import collectives
from headcount.bench.contractions.elementwise import CONTRACTION, ElementwiseProduct, find_elementwise_products
from headcount.bench.contractions.kinds import Kinds
from headcount.bench.contractions.linalg import SETS, Formula, formula_advice
from headcount.bench.contractions.modules import ModuleRecord, Modules, module_records, outer_paths
from headcount.bench.contractions.products import find_rule, products
from headcount.bench.contractions.products.product import Product
from headcount.bench.contractions.untraced import find_untraced_tensors
from headcount.bench.contractions.zero_mac_ops import holds_none
from headcount.bench.trace.collector import no_full_gc
from headcount.bench.trace.events import FUNCTION, Event, Trace, shapes_text, tensors_in
from headcount.bench.trace.memory import measure_activations
from headcount.formulas.ledger import Entry, Ledger, flops
from headcount.formulas.rank import Transfer
from headcount.formulas.summary import sizes

if TYPE_CHECKING:
    import pandas

COUNTED, NO_CONTRACTION, UNKNOWN = "counted", "no contraction", "unknown"

DISPATCHED, WITH_ELEMENTWISE = "dispatched contractions", "with elementwise contractions"
INCLUDE, REPORT, REFUSE = "include", "report", "refuse"
POLICIES = (REPORT, INCLUDE, REFUSE)
"""Policies for contractions written elementwise: reported separately, included in the count, or an error."""


class UnsupportedError(RuntimeError):
    """A run contains unsupported operators; ``unsupported`` are their audit lines."""

    def __init__(self, unsupported: tuple["AuditLine", ...]) -> None:
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


class ElementwiseError(RuntimeError):
    """A run contains contractions written elementwise under the policy "refuse"; ``elementwise`` are these."""

    def __init__(self, elementwise: tuple[ElementwiseProduct, ...]) -> None:
        self.elementwise = elementwise
        lines = "; ".join(dict.fromkeys(part.text() for part in elementwise))
        super().__init__(
            f"contractions written elementwise: {lines}; elementwise='include' counts them, 'report' names them"
        )


@dataclass(frozen=True)
class AuditLine:
    """All calls of one operation from one module: its state and the shapes of the first call.

    ``source`` is the option or registry whose formula counts it; "" for headcount's own rules.
    """

    operation: str
    state: str
    path: str
    calls: int
    shapes: tuple[tuple[int, ...], ...]
    source: str = ""

    def text(self) -> str:
        """Return one phrase with operation, shapes and module."""
        shapes = shapes_text(self.shapes) or "no tensors"
        times = f"{self.calls} times, " if self.calls > 1 else ""
        return f"{self.operation} on {shapes} ({times}in {self.path or 'the model'})"


def merge_equal_lines(lines: Iterable[AuditLine]) -> list[AuditLine]:
    """Return the lines of equal operations in numbered layers as one, with the path ``layers.0-2.attn``."""
    groups: dict[tuple, list[AuditLine]] = {}
    for line in lines:
        groups.setdefault((line.operation, line.state, line.shapes, summary.folded(line.path)), []).append(line)
    merged = []
    for same in groups.values():
        path = summary.path_of_layers([line.path for line in same])
        merged.append(replace(same[0], path=path, calls=sum(line.calls for line in same)))
    return merged


@dataclass(frozen=True, repr=False)
class ContractionCount(Modules):
    """``ledger`` of all contractions, by module path and kind; ``audit`` of all dispatched operations.

    Prints as a tree of ``modules``, ``depth`` levels deep (None for all), with outputs, parameters, MACs and shares, in
    notebooks too.

    ``by_event`` maps each operation event to its (kind, product) pairs. With ``included`` the contractions among
    ``elementwise`` are in ``macs``, ``ledger`` and ``by_event``, otherwise in ``with_elementwise`` only.
    ``collectives`` are those of a module that is divided over ranks, each with the elements that it sends.
    """

    ledger: Ledger
    audit: tuple[AuditLine, ...]
    by_event: Mapping[int, list[tuple[str, Product]]]
    trace: Trace = field(default_factory=Trace, compare=False)
    included: bool = False
    collectives: tuple[Transfer, ...] = ()
    depth: int | None = 3

    @cached_property
    @no_full_gc
    def elementwise(self) -> tuple[ElementwiseProduct, ...]:
        """The products written elementwise (bench.contractions.elementwise); found at the first use."""
        dispatched = [index for index, parts in self.by_event.items() if any(kind != CONTRACTION for kind, _ in parts)]
        return tuple(find_elementwise_products(self.trace, dispatched))

    @property
    def macs(self) -> int:
        """Dispatched contractions, and with ``included`` those written elementwise too."""
        return self.with_elementwise if self.included else self.dispatched

    @property
    def headline(self) -> str:
        """A label that states what ``macs`` includes."""
        return WITH_ELEMENTWISE if self.included else DISPATCHED

    @property
    def dispatched(self) -> int:
        """Multiply-accumulates of operations that are contractions."""
        return self.ledger.macs

    @property
    def with_elementwise(self) -> int:
        """Dispatched contractions and those written elementwise."""
        return self.dispatched + sum(part.size for part in self.elementwise if part.kind == CONTRACTION)

    @property
    def flops(self) -> int:
        """Floating-point operations, two for each of ``macs``."""
        return flops(self.macs)

    def bytes_moved(self) -> int:
        """Return the bytes that operations move, unfused (bench.contractions.costs)."""
        return costs.bytes_moved(self.trace)

    @property
    def intensity(self) -> Fraction | None:
        """``macs`` per byte moved; None where nothing moves."""
        moved = self.bytes_moved()
        return Fraction(self.macs, moved) if moved else None

    @property
    def causal_macs(self) -> int | None:
        """``macs`` without the pairs that masks of attention hide; None where a mask is not known."""
        return costs.causal_macs(self.trace, self.by_event)

    @staticmethod
    def peak_bytes(module: nn.Module, *inputs: Any, training: bool = False, **kwargs: Any) -> int:
        """Return the most bytes of activations that are live at once, of a forward pass or a training step.

        Runs ``module(*inputs, **kwargs)`` once more: a count keeps no module. Inputs, weights and the output's gradient
        are not in it (bench.trace.memory).
        """
        return measure_activations(module, inputs, kwargs, training=training).peak_bytes

    @staticmethod
    def saved_bytes(module: nn.Module, *inputs: Any, **kwargs: Any) -> int:
        """Return the bytes of activations that a forward pass leaves for backward, its output included."""
        return measure_activations(module, inputs, kwargs, training=True).saved_bytes

    def other_flops(self, prices: Mapping[str, int] | None = None) -> dict[str, int]:
        """Return the FLOPs of operations without MACs by kind, at stated prices per element."""
        return costs.other_flops(self.trace, self.by_event, prices)

    @cached_property
    def modules(self) -> tuple[ModuleRecord, ...]:
        """Each module that was called or holds parameters; computed at the first use."""
        return module_records(self.trace, self.by_event)

    def by_module(self) -> dict[str, int]:
        """Return multiply-accumulates by module path, submodules included; the model is the empty path."""
        found: dict[str, int] = {"": 0}
        for entry in self.ledger:
            for path in outer_paths(entry.path):
                found[path] = found.get(path, 0) + entry.size
        return found

    def by_kind(self) -> dict[str, int]:
        """Return multiply-accumulates by kind of product."""
        return self.ledger.group(lambda entry: entry.kind, of="size")

    def by_type(self) -> dict[str, int]:
        """Return multiply-accumulates by class of the module that runs them, without those of modules inside."""
        types = {module.path: module.type for module in self.modules}
        return self.ledger.group(lambda entry: types.get(entry.path) or entry.path.rpartition(".")[2], of="size")

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return a row for each product: path, class, kind, sizes, times, macs, flops, share in percent and params.

        Parameters are in the first row of their module, or in one of their own without a product.
        """
        import pandas

        types = {module.path: module.type for module in self.modules}
        params = {module.path: module.params for module in self.modules if module.params}
        rows = []
        for entry in self.ledger:
            share = 100 * entry.size / self.ledger.macs if self.ledger.macs else None
            values = (entry.path, entry.kind, sizes(entry), entry.times, entry.size, flops(entry.size), share)
            rows.append((*values, types.get(entry.path, ""), params.pop(entry.path, 0)))
        rows += [(path, "", "", 0, 0, 0, 0.0, types[path], own) for path, own in params.items()]
        names = ["path", "kind", "sizes", "times", "macs", "flops", "share", "type", "params"]
        return pandas.DataFrame(rows, columns=names)

    def __str__(self) -> str:
        apart = self.with_elementwise - self.dispatched
        notes = [f"Not in it: {apart:,} MACs written elementwise and summed."] if apart and not self.included else []
        notes += [f"Not counted: {line.text()}." for line in merge_equal_lines(self.unsupported)]
        return summary.text(summary.section(self, [*notes, *self.trace.notes()], self.depth))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    @property
    def elementwise_ledger(self) -> Ledger:
        """The elementwise products by module path and kind, squares and scaled additions too."""
        return summary.merge_equal(Entry(part.event.path, part.kind, part.dims) for part in self.elementwise)

    @property
    def unsupported(self) -> tuple[AuditLine, ...]:
        """The audit lines of unsupported operators."""
        return tuple(line for line in self.audit if line.state == UNKNOWN)


@no_full_gc
def count_contractions(
    trace: Trace,
    *,
    allow_unsupported: bool = False,
    formulas: Mapping[str, Formula] | None = None,
    formula_set: str | None = None,
    elementwise: str = REPORT,
) -> ContractionCount:
    """Count the contractions of ``trace``. ``formulas`` give the MACs of further operations by name ("mylib.my_op").

    ``formula_set`` adds the formulas of bench.contractions.linalg; ``formulas`` come first.

    Raises UnsupportedError for unsupported operators, which neither have a rule nor are known to be free of
    contractions; with ``allow_unsupported`` they are only in the audit. ``elementwise`` is one of POLICIES; "refuse"
    raises ElementwiseError if a contraction is written elementwise, and a formula without a whole number ValueError.
    """
    if elementwise not in POLICIES:
        raise ValueError(f"elementwise={elementwise!r} is none of {', '.join(POLICIES)}")
    if formula_set not in (None, *SETS):
        raise ValueError(f"formula_set={formula_set!r} is none of {', '.join(SETS)}")
    given = formulas or {}
    formulas = {**SETS.get(formula_set, {}), **given}
    sources = {**dict.fromkeys(formulas, f"formula_set {formula_set}"), **dict.fromkeys(given, "formulas")}
    found, audit = _classify(trace, formulas, sources)
    # one line for all tensors that one operation in one module uses
    untraced = {(name, path): fact for name, path, fact in find_untraced_tensors(trace)}
    audit += [AuditLine(name, UNKNOWN, path, 1, (fact.shape,)) for (name, path), fact in untraced.items()]
    out = ContractionCount(Ledger(()), tuple(audit), Kinds(trace, found).found, trace)
    if out.unsupported and not allow_unsupported:
        raise UnsupportedError(out.unsupported)
    contractions = () if elementwise == REPORT else [part for part in out.elementwise if part.kind == CONTRACTION]
    if contractions and elementwise == REFUSE:
        raise ElementwiseError(tuple(contractions))
    if elementwise == INCLUDE:
        by_event = dict(out.by_event)
        for part in contractions:
            by_event[part.event.index] = [*by_event.get(part.event.index, ()), (part.kind, Product(part.dims, ()))]
        by_event = dict(sorted(by_event.items()))
        out = replace(out, by_event=by_event, included=True)
    entries = (
        Entry(trace.events[index].path, kind, product.dims)
        for index, parts in out.by_event.items()
        for kind, product in parts
    )
    return replace(out, ledger=summary.merge_equal(entries), collectives=collectives(trace))


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
    """Return whether ``event`` is the product of an einsum of two operands whose summed indices all have size one."""
    event = event if event.forward is None else trace.events[event.forward]
    for call in (event, *trace.around(event)):
        if call.what == FUNCTION and call.name == "einsum" and call.args and isinstance(call.args[0], str):
            inputs, _, result = call.args[0].partition("->")
            first, *others = inputs.split(",")
            # Without an arrow, common indices are summed.
            return len(others) == 1 and any(x.isalpha() and x not in result for x in first if x in others[0])
    return False
