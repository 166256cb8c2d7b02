"""Count the contractions of a recorded run: every contraction once, every other operation classified."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import keystr, tree_flatten_with_path

from headcount.bench.contractions import costs, module_tree
from headcount.bench.contractions.classify import find_contractions
from headcount.bench.contractions.collectives import collectives
from headcount.bench.contractions.elementwise import CONTRACTION, ElementwiseProduct, find_elementwise_products
from headcount.bench.contractions.linalg import SETS, Formula
from headcount.bench.contractions.modules import ModuleRecord, module_records, uncalled_modules, used_weights
from headcount.bench.contractions.products.product import Product, ProductsByEvent
from headcount.bench.contractions.zero_mac_ops import base
from headcount.bench.counting.result import Count, Parameter
from headcount.bench.env import counting_versions
from headcount.bench.targets.target import POLICIES
from headcount.bench.trace.events import FUNCTION, OPERATION, Event, TensorFact, Trace, shapes_text, tensors_in
from headcount.bench.trace.garbage_collector import no_full_gc
from headcount.bench.trace.modes import EXPORTS
from headcount.bench.trace.shapes import OF_VALUES
from headcount.formulas.ledger import Entry, Ledger, at

REPORT, INCLUDE, REFUSE = POLICIES
"""Policies for contractions written elementwise: reported separately, included in the count, or an error."""
READS = frozenset("_local_scalar_dense nonzero masked_select index unique_consecutive _unique2 bincount".split())
"""Operations by which values decide what a run computes."""
_READ_IN_CPP = {"tensor_split", "_pack_padded_sequence"}
"""Calls into C++ that read positions or lengths by no operation."""
SIZES_READ = "The run read values of inputs that were made from sizes, {}: with other values it may run other parts."
"""A note, with the values that were made."""


class ElementwiseError(RuntimeError):
    """A run contains contractions written elementwise under the policy "refuse"; ``elementwise`` are these."""

    def __init__(self, elementwise: tuple[ElementwiseProduct, ...]) -> None:
        self.elementwise = elementwise
        lines = "; ".join(dict.fromkeys(part.text() for part in elementwise))
        super().__init__(
            f"contractions written elementwise: {lines}; elementwise='include' counts them, 'report' names them"
        )


@dataclass(frozen=True)
class Run:
    """A recorded run and its contractions by event."""

    trace: Trace
    by_event: ProductsByEvent

    @cached_property
    @no_full_gc
    def elementwise_products(self) -> tuple[ElementwiseProduct, ...]:
        """The products written elementwise, each with its operation (bench.contractions.elementwise)."""
        dispatched = [index for index, parts in self.by_event.items() if any(kind != CONTRACTION for kind, _ in parts)]
        return tuple(find_elementwise_products(self.trace, dispatched))

    @cached_property
    def modules(self) -> tuple[ModuleRecord, ...]:
        """Each module that was called or holds parameters."""
        return module_records(self.trace, self.by_event)

    def find(self, name: str) -> Any:
        """Return the field ``name`` of a Count."""
        return FIELDS[name](self)


FIELDS: Mapping[str, Callable[[Run], Any]] = {
    "elementwise": lambda run: _elementwise_ledger(run.elementwise_products),
    "parameters": lambda run: _parameters(run.trace),
    "modules": lambda run: run.modules,
    "uncalled": lambda run: uncalled_modules(run.modules),
    "bytes_moved": lambda run: costs.bytes_moved(run.trace),
    "causal_macs": lambda run: costs.causal_macs(run.trace, run.by_event),
    "other_flops": lambda run: costs.other_flops(run.trace, run.by_event),
    "versions": lambda _: counting_versions(),
    "notes": lambda run: tuple(run.trace.notes()),
}
"""How each field of a Count is found that takes long."""


def _elementwise_ledger(products: Iterable[ElementwiseProduct]) -> Ledger:
    """Return the products written elementwise, equal ones of a module as one entry."""
    return module_tree.merge_equal(Entry(one.event.path, one.kind, one.dims) for one in products)


def _parameters(trace: Trace) -> tuple[Parameter, ...]:
    """Return the parameters of the module, and those that it does not register and the run used."""
    weights = trace.weights
    used = set() if all(weight.registered for weight in weights) else used_weights(trace)
    return tuple(
        Parameter(weight.name, weight.shape, weight.trainable)
        for weight in weights
        if weight.registered or weight.name in used
    )


@no_full_gc
def count_contractions(
    trace: Trace,
    *,
    allow_unsupported: bool = False,
    formulas: Mapping[str, Formula] | None = None,
    formula_set: str | None = None,
    elementwise: str = REPORT,
    inputs: tuple[str, ...] = (),
) -> Count:
    """Count the contractions of ``trace``, a run on ``inputs``.

    ``formulas`` give the MACs of further operations by name ("mylib.my_op"). ``formula_set`` adds the
    formulas of bench.contractions.linalg; ``formulas`` come first.

    Raises UnsupportedError for unsupported operators, which neither have a rule nor are known to be free of
    contractions; with ``allow_unsupported`` they are only in the audit. ``elementwise`` is one of POLICIES; "refuse"
    raises ElementwiseError if a contraction is written elementwise, and a formula without a whole number ValueError.
    """
    if elementwise not in POLICIES:
        raise ValueError(f"elementwise={elementwise!r} is none of {', '.join(POLICIES)}")
    if formula_set not in (None, *SETS):
        raise ValueError(f"formula_set={formula_set!r} is none of {', '.join(SETS)}")
    given = formulas or {}
    formulas = {**SETS.get(formula_set or "", {}), **given}
    sources = {**dict.fromkeys(formulas, f"formula_set {formula_set}"), **dict.fromkeys(given, "formulas")}
    by_event, audit = find_contractions(trace, formulas, sources, allow_unsupported=allow_unsupported)
    if elementwise != REPORT:
        products = Run(trace, by_event).elementwise_products
        contractions = tuple(one for one in products if one.kind == CONTRACTION)
        if contractions and elementwise == REFUSE:
            raise ElementwiseError(contractions)
        by_event = _with_elementwise(by_event, contractions)
    entries = (
        Entry(_path_of(trace, trace.events[index], product), kind, product.dims)
        for index, parts in by_event.items()
        for kind, product in parts
    )
    return Count(
        name=trace.modules[0].kind.__name__ if trace.modules else "",
        ledger=module_tree.merge_equal(entries),
        included=elementwise == INCLUDE,
        collectives=collectives(trace) if trace.groups else (),
        audit=audit,
        inputs=inputs,
        run=Run(trace, by_event),
    )


def _path_of(trace: Trace, event: Event, product: Product) -> str:
    """Return the path of the module that a product belongs to: that of the call where it has no such module inside."""
    path = at(event.path, product.path)
    return path if product.path and any(module.path == path for module in trace.modules) else event.path


def _with_elementwise(by_event: ProductsByEvent, contractions: tuple[ElementwiseProduct, ...]) -> ProductsByEvent:
    """Return the contractions by event with those written elementwise."""
    found = dict(by_event)
    for one in contractions:
        index = one.event.index
        found[index] = [*found.get(index, ()), (one.kind, Product(one.dims, ()))]
    return dict(sorted(found.items()))


def reads_inputs(trace: Trace) -> bool:
    """Return whether values of the inputs, or computed from them, decide what a run computes: ``if x.sum() > 0``."""
    inputs = tensors_in((trace.args, tuple(trace.kwargs.values())))
    uses = _uses(trace, {fact.storage for fact in inputs})
    return any(event.what == OPERATION and _decides(event, used) for event, used in uses)


def may_read_weights(trace: Trace) -> bool:
    """Return whether values computed from weights may decide what a run computes, also where no operation reads them.

    A run that reads none is the same with others.
    """
    uses = _uses(trace, {*trace.parameters, *trace.buffers, *trace.given})
    return bool(trace.left or trace.elsewhere) or any(_may_decide(event, used) for event, used in uses)


def _uses(trace: Trace, storages: set[int]) -> Iterator[tuple[Event, list[TensorFact]]]:
    """Iterate over operations and calls into C++, with their tensors in ``storages`` or computed from such ones."""
    computed = set(storages)
    for event in trace.events:
        is_operation = event.what == OPERATION and not event.composite
        if event.failed or not is_operation and event.what != FUNCTION:
            continue
        used = [fact for fact in event.tensors() if fact.storage in computed]
        yield event, used
        # what is only as large as an input has none of its values
        name = base(event.name)
        if is_operation and used and not name.endswith("_like") and not name.startswith("new_"):
            computed.update(fact.storage for fact in tensors_in(event.out))
            computed.update(event.writes)


def _decides(event: Event, used: Sequence[TensorFact]) -> bool:
    """Return whether the values of ``used`` decide what runs after an operation."""
    name = base(event.name)
    # of an index only a mask decides how many elements there are
    return name in READS and (name != "index" and bool(used) or any(fact.dtype == "bool" for fact in used))


def _may_decide(event: Event, used: Sequence[TensorFact]) -> bool:
    """Return whether values of ``used`` may decide what runs after an operation or a call into C++."""
    if not used or base(event.name) == "index":
        return _decides(event, used)
    if event.what == FUNCTION:
        return event.name in EXPORTS or event.name in _READ_IN_CPP
    has_offsets = event.covered is not None and any("int" in fact.dtype for fact in used)
    return has_offsets or _decides(event, used) or not _follows_shapes(event.name)


@cache
def _follows_shapes(name: str) -> bool:
    """Return whether torch says of an operation that the shapes of its results follow from shapes; False of others'."""
    packet = getattr(torch.ops.aten, name, None)
    overloads = [getattr(packet, overload) for overload in packet.overloads()] if packet else []
    return bool(overloads) and all(OF_VALUES.isdisjoint(overload.tags) for overload in overloads)


def inputs_of(args: tuple, kwargs: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the place, shape and type of each tensor among the inputs."""
    places = tree_flatten_with_path({str(number): value for number, value in enumerate(args)} | dict(kwargs))[0]
    return tuple(
        f"{place[0].key}{keystr(place[1:])}: {_sizes(value)} {str(value.dtype).removeprefix('torch.')}"
        for place, value in places
        if isinstance(value, Tensor)
    )


def _sizes(tensor: Tensor) -> str:
    # a nested tensor has no shape as a whole
    parts = tensor.unbind() if tensor.is_nested else [tensor]
    return shapes_text((part.shape for part in parts), ", ")
