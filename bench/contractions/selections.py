"""Find where values decide which weights a token meets: routers, however they are written.

One pass over the operations follows three things: the *choices* that integers, masks and zeros in numbers are made of
(a largest score, a comparison, an input's ids), the *weights* whose products a tensor's rows are, and the choice by
which rows were taken from another tensor. A weight is selected where rows taken by a learned choice reach it, where a
learned choice takes, writes or masks its rows, and where rows of one tensor are divided among several weights by any
choice. Padding masks, rows taken for one head and masks of attention decide nothing of the kind.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING, Any

from headcount.bench.contractions.zero_mac_ops import CREATED, FREE, GATHERS, base
from headcount.bench.trace.events import FUNCTION, OPERATION, Event, TensorFact, Trace, tensors_in

if TYPE_CHECKING:
    from headcount.bench.contractions.products.product import ProductsByEvent

CONSTANT, INPUT, LEARNED = range(3)
"""What a value depends on at most: nothing that changes, inputs, or parameters."""
_TAKES = frozenset("index _unsafe_index gather index_select take masked_select embedding".split())
"""Operations that take elements of their first tensor by the values of others."""
_PUTS = frozenset(
    "index_put _index_put_impl _unsafe_index_put scatter scatter_add scatter_reduce index_add index_copy index_reduce"
    " masked_scatter put".split()
)
"""Operations that write values to places of their first tensor that others give."""
_STEPS = frozenset("heaviside sign sgn round floor ceil trunc bernoulli".split())
"""Operations whose floating-point results are choices."""
_NEVER_ZERO = frozenset("exp exp2 pow ldexp".split())
_SAME_VALUES = FREE | {"_to_copy", "expand"}
_SAMPLES = frozenset({"bernoulli", "multinomial", "fill", "complex", "polar"})
"""Operations that create a tensor from values of another."""
_RANDOM = frozenset("rand rand_like randn randn_like randint randint_like randperm normal random uniform".split())
"""Operations that draw numbers: a choice by them differs from one call to the next, as one by inputs does."""
_OPPOSITES = {"ne": "eq", "lt": "ge", "le": "gt"}
"""Comparisons that are true where others are not."""
_EXITS = frozenset({"tolist", "numpy", "__array__"})
_FOLLOWED = FREE | GATHERS


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of ``source`` that a choice takes: its number, and the events that it is made by."""

    source: tuple
    number: int
    roots: frozenset[int]


@dataclass(frozen=True, slots=True)
class Gated:
    """Rows of the products of ``weights`` that the choice ``number`` masks."""

    number: int
    roots: frozenset[int]
    weights: frozenset[int]


@dataclass(frozen=True, slots=True)
class Value:
    """What is known of a tensor.

    ``roots``: the events, or as negative numbers the inputs, that decide where it is zero, true or which integer;
    ``number`` is equal for equal choices. ``weights``: the parameters whose products its rows are; ``stacked``: of
    several of them along an axis of their own. ``rows``: how its rows were taken; ``gated``: parts that are masked.
    """

    depends: int = CONSTANT
    roots: frozenset[int] = frozenset()
    number: int = -1
    weights: frozenset[int] = frozenset()
    stacked: bool = False
    rows: Rows | None = None
    gated: frozenset[Gated] = frozenset()


NOTHING = Value()


class Selections:
    """The selections of a forward pass: ``found`` has the events that decide each.

    ``exit`` is the event of the first value that leaves for Python and may decide what runs, None where none does.
    """

    def __init__(self, trace: Trace, by_event: "ProductsByEvent") -> None:
        self.found: set[frozenset[int]] = set()
        self._trace = trace
        self._products = by_event
        self._values: dict[tuple, Value] = {}
        self._stored: dict[int, Value] = {}
        self._numbers: dict[Any, int] = {}
        self._learned: set[int] = set()
        self._uses: defaultdict[tuple, list[tuple[Rows, frozenset[int]]]] = defaultdict(list)
        self._slices: defaultdict[int, defaultdict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        self._inputs = {fact.storage for fact in tensors_in((trace.args, trace.kwargs))}
        self._sizes: dict[int, int] = {}
        self.exit: int | None = None
        for event in trace.events:
            if event.backward or event.failed:
                continue
            if event.what == FUNCTION and event.name in _EXITS or event.name == "_local_scalar_dense":
                self._leave(event)
            elif event.what == OPERATION and not event.composite:
                self._follow(event)
        self._compare_uses()
        if self.exit is not None and self._differs_by_layer():
            self.found.add(frozenset({self.exit}))

    # Values

    def _value(self, fact: TensorFact) -> Value:
        """Return what is known of a tensor, else of its memory, else of the parameter or input that it is."""
        known = self._values.get((fact.source, *fact.place)) or self._stored.get(fact.storage)
        if known is not None:
            return known
        if fact.storage in self._trace.parameters:
            return Value(LEARNED)
        if fact.storage in self._inputs:
            return Value(INPUT, frozenset() if _is_real(fact) else frozenset({-1 - fact.storage}), self._name(fact))
        return NOTHING

    def _name(self, *parts: Any) -> int:
        """Return the number of a computation, which is equal for equal operations on equal tensors."""
        return self._numbers.setdefault(self._named(parts), len(self._numbers))

    def _named(self, part: Any) -> Any:
        if isinstance(part, TensorFact):
            known = self._value(part) if part.storage not in self._inputs or part.source is not None else NOTHING
            return known.number if known.number >= 0 else ("tensor", part.source, *part.place)
        if isinstance(part, tuple):
            return tuple(map(self._named, part))
        return tuple((key, self._named(one)) for key, one in part.items()) if isinstance(part, dict) else part

    def _put(self, event: Event, out: TensorFact, value: Value) -> None:
        self._values[(out.source, *out.place)] = value
        if event.writes and out.storage in event.writes:
            old = self._stored.get(out.storage, NOTHING)
            value = replace(
                value,
                depends=max(old.depends, value.depends),
                weights=old.weights | value.weights,
                gated=old.gated | value.gated,
            )
            self._values[(out.source, *out.place)] = value
            self._stored[out.storage] = value
        elif out.source == event.index:
            self._stored[out.storage] = value

    def _is_learned(self, roots: frozenset[int]) -> bool:
        return not self._learned.isdisjoint(roots)

    def _depends(self, roots: frozenset[int]) -> int:
        if not roots:
            return CONSTANT
        return LEARNED if self._is_learned(roots) else INPUT

    # Operations

    def _follow(self, event: Event) -> None:
        """Note what an operation does to the values of its operands, and the selection that it makes."""
        name, facts, outs = base(event.name), list(event.tensors()), list(tensors_in(event.out))
        for fact in (*facts, *outs):
            self._sizes[fact.storage] = max(self._sizes.get(fact.storage, 0), fact.numel)
        if self._products.get(event.index):
            value = self._multiply(event, facts)
        elif name in _RANDOM:
            roots = frozenset() if _is_real(outs[0]) else frozenset({event.index})
            value = Value(INPUT, roots, self._name(event.index))
        elif not facts or name in CREATED and name not in _SAMPLES:
            value = NOTHING
        elif name in ("cat", "stack"):
            value = self._join(name, facts, outs[0])
        elif name in _TAKES and _is_real(facts[0]):
            value = self._take(event, name, facts, outs[0])
        elif name in _PUTS and _is_real(facts[0]):
            value = self._write(event, name, facts)
        elif name in ("mul", "div", "true_divide", "where", "masked_fill"):
            value = self._mask(event, name, facts, outs[0])
        elif name == "copy":
            value = self._value(facts[1])
        elif name in _SAME_VALUES and facts:
            value = None
        else:
            value = self._compute(name, facts, outs[0]) if outs else NOTHING
        for position, out in enumerate(outs):
            own = self._move(event, name, facts[0], out, position) if value is None else value
            self._put(event, out, self._choose(event, name, facts, out, own, position))

    def _choose(self, event: Event, name: str, facts: list[TensorFact], out: TensorFact, value: Value, position: int):
        """Return the value of a result with the choices that it is, if it is of integers, a mask or steps."""
        if name in CREATED and name not in _SAMPLES:
            return value
        if _is_real(out) and name not in _STEPS:
            return value if value.number >= 0 else replace(value, number=self._name(name, event.args, position))
        known = [(fact, self._value(fact)) for fact in facts]
        roots = frozenset().union(*(value.roots for _, value in known))
        for fact, one in known:
            if _is_real(fact) and one.depends == LEARNED:
                self._learned.add(event.index)
                roots |= {event.index}
            elif _is_real(fact) and one.depends == INPUT and not one.roots:
                roots |= {-1 - fact.storage}
        if name in _SAMPLES and name in _STEPS | {"multinomial"}:
            roots |= {event.index}
        depends = max((one.depends for _, one in known), default=CONSTANT)
        keeps = value.number >= 0 and name in _SAME_VALUES and not _is_real(facts[0])
        return Value(depends, roots, value.number if keeps else self._number(event, name, facts, position))

    def _number(self, event: Event, name: str, facts: list[TensorFact], position: int) -> int:
        if name in ("logical_not", "bitwise_not"):
            return self._opposite(self._named(facts[0]))
        if name in _OPPOSITES:
            return self._opposite(self._name(_OPPOSITES[name], event.args, tuple(event.kwargs.items()), position))
        return self._name(name, event.args, tuple(event.kwargs.items()), position)

    def _opposite(self, number: Any) -> int:
        """Return the number of a mask that is true where another is not; of the opposite, the mask's own."""
        found = self._name("not", number)
        if isinstance(number, int):
            self._numbers.setdefault(("not", found), number)
        return found

    def _move(self, event: Event, name: str, fact: TensorFact, out: TensorFact, position: int) -> Value:
        """Return the value of a view or a copy: the operand's, as a new choice where it is a part of the operand."""
        value = self._value(fact)
        if out.numel >= fact.numel:
            return value
        number = self._name(name, event.args, position)
        rows = value.rows
        if rows and out.shape[1:] == fact.shape[1:]:
            rows = replace(rows, number=self._name("rows", rows.number, out.offset, out.shape))
        return replace(value, number=number, rows=rows, stacked=False)

    def _compute(self, name: str, facts: list[TensorFact], out: TensorFact) -> Value:
        """Return the value of an elementwise operation, a norm, a reduction or anything else that computes."""
        found = [(fact, self._value(fact)) for fact in facts]
        same = [value for place, (fact, value) in enumerate(found) if not place or fact.numel == out.numel]
        computed = [value for fact, value in found if weight_of(self._trace, fact) is None]
        gated = frozenset().union(*(value.gated for value in computed))
        if len(gated) > 1:
            self._compare_gated(gated)
        roots = frozenset() if name in _NEVER_ZERO else frozenset().union(*(value.roots for value in same))
        return Value(
            depends=max(value.depends for _, value in found),
            roots=roots,
            weights=frozenset().union(*(value.weights for value in computed)),
            stacked=any(value.stacked for value in same),
            rows=next((value.rows for value in same if value.rows), None),
            gated=gated,
        )

    def _join(self, name: str, facts: list[TensorFact], out: TensorFact) -> Value:
        """Return the value of tensors side by side: those of several weights may have an axis of their own."""
        value = self._compute(name, facts, facts[0])
        of_weights = {own for own in (self._value(fact).weights for fact in facts) if own}
        has_axis = name == "stack" or len(facts) in out.shape and out.shape.count(1) < facts[0].shape.count(1)
        return replace(value, stacked=value.stacked or has_axis and len(of_weights) > 1, rows=None)

    def _multiply(self, event: Event, facts: list[TensorFact]) -> Value:
        """Return the value of a product, and note the rows that its weights meet."""
        weights = {fact: weight_of(self._trace, fact) for fact in facts}
        used = frozenset(weights.values()) - {None}
        data = [fact for fact, weight in weights.items() if weight is None and _is_real(fact)]
        values = [self._value(fact) for fact in data]
        gates = [value.roots for value in values if value.roots]
        if not used:
            if gates and any(value.stacked for value in values):
                self.found.add(gates[0])
            return Value(max((value.depends for value in values), default=CONSTANT))
        convolves = any(kind.startswith("conv") for kind, _ in self._products[event.index])
        stacked = not convolves and any(len(self._trace.parameters[weight][1]) > 2 for weight in used)
        if stacked:
            self.found.update(roots for roots in gates if self._is_learned(roots))
        for fact, value in zip(data, values, strict=True):
            if value.rows:
                self._meet(value.rows, used)
            if fact.numel < self._sizes[fact.storage]:
                for weight in used:
                    self._slices[fact.storage][weight].add(fact.offset)
        return Value(LEARNED, weights=used, stacked=stacked)

    def _meet(self, rows: Rows, weights: frozenset[int]) -> None:
        if self._is_learned(rows.roots):
            self.found.add(rows.roots)
        else:
            self._uses[rows.source].append((rows, weights))

    def _selector(self, facts: Sequence[TensorFact]) -> tuple[int, frozenset[int]]:
        """Return the number and the roots of the integers and masks that an operation takes or writes by."""
        chosen = [fact for fact in facts if not _is_real(fact)]
        roots = frozenset().union(*(self._value(fact).roots for fact in chosen))
        return self._name("selector", tuple(chosen)), roots

    def _take(self, event: Event, name: str, facts: list[TensorFact], out: TensorFact) -> Value:
        """Return the value of elements that are taken by integers or a mask."""
        data, value = facts[0], self._value(facts[0])
        number, roots = self._selector(facts[1:])
        if weight_of(self._trace, data) is not None:
            if self._is_learned(roots):
                self.found.add(roots)
            return Value(LEARNED)
        if not roots:
            return replace(value, number=self._name(name, event.args))
        if value.depends == CONSTANT:
            # a row of a constant table, as of an identity matrix, is a choice itself
            return Value(self._depends(roots), roots, self._name(name, event.args))
        keeps = _keeps_features(event, name)
        if self._is_learned(roots) and value.weights and (value.stacked or keeps) or keeps and value.stacked:
            self.found.add(roots)
        source = (data.source, *data.place)
        rows = Rows(source, number, roots) if keeps else None
        return replace(value, number=-1, stacked=False, rows=rows)

    def _write(self, event: Event, name: str, facts: list[TensorFact]) -> Value:
        """Return the value of a tensor to which rows or elements are written by integers or a mask."""
        value = self._value(facts[0])
        number, roots = self._selector(facts[1:])
        keeps = _keeps_features(event, name)
        written = self._value(facts[-1]) if _is_real(facts[-1]) and len(facts) > 1 else NOTHING
        gated = value.gated | written.gated
        if roots and written.weights and (written.rows or keeps):
            if self._is_learned(roots):
                self.found.add(roots)
            elif written.rows and written.rows.number == number:
                gated |= {Gated(number, roots, written.weights)}
                self._compare_gated(gated)
        return Value(
            depends=max(value.depends, written.depends, self._depends(roots)),
            roots=value.roots if keeps else value.roots | roots,
            weights=value.weights | written.weights,
            gated=gated,
        )

    def _mask(self, event: Event, name: str, facts: list[TensorFact], out: TensorFact) -> Value:
        """Return the value of a product or a choice of two tensors elementwise: a choice may mask whole rows."""
        value = self._compute(name, facts, out)
        first, *others = event.args[:3]
        masks: list[tuple[TensorFact, TensorFact, int]] = []
        if name in ("where", "masked_fill"):
            number = self._name("mask", first if name == "where" else others[0])
            if name == "masked_fill":
                masks = [(others[0], first, self._opposite(self._named(others[0])))]
            else:
                sides = zip(others, (self._named(first), self._opposite(self._named(first))), strict=False)
                masks = [(first, side, number) for side, number in sides if isinstance(side, TensorFact)]
        elif isinstance(first, TensorFact) and others and isinstance(others[0], TensorFact):
            masks = [(mask, data, self._named(mask)) for mask, data in ((first, others[0]), (others[0], first))]
        gated: set[Gated] = set(value.gated)
        for mask, data, number in masks:
            roots = self._value(mask).roots
            if not roots or not _is_real(data) or not _is_broadcast(mask, out):
                continue
            weights = self._value(data).weights
            if self._is_learned(roots) and (weights or weight_of(self._trace, data) is not None):
                self.found.add(roots)
            number = number if isinstance(number, int) else self._name(number)
            if weights:
                gated.add(Gated(number, roots, weights))
            value = replace(value, rows=value.rows or Rows((data.source, *data.place), number, roots))
        if len(gated) > 1:
            self._compare_gated(gated)
        return replace(value, gated=frozenset(gated))

    # Comparisons

    def _compare_gated(self, gated: frozenset[Gated] | set[Gated]) -> None:
        """Note a selection where different parts of one choice mask the products of different weights."""
        parts = list(gated)
        for place, one in enumerate(parts):
            for other in parts[:place]:
                common = one.roots & other.roots
                if one.number != other.number and common and one.weights.isdisjoint(other.weights):
                    self.found.add(one.roots | other.roots)
                    return

    def _compare_uses(self) -> None:
        """Note a selection where a choice divides the rows of one tensor among several weights."""
        for uses in self._uses.values():
            by_root: defaultdict[int, dict[int, frozenset[int]]] = defaultdict(dict)
            for rows, weights in uses:
                for root in rows.roots:
                    by_root[root][rows.number] = by_root[root].get(rows.number, frozenset()) | weights
            for root, by_number in by_root.items():
                if len(set(by_number.values())) > 1:
                    self.found.add(frozenset({root}))

    def _leave(self, event: Event) -> None:
        """Note the first value that leaves for Python and may decide what runs: a mask only if it is learned."""
        for fact in event.tensors():
            value = self._value(fact)
            learned = self._is_learned(value.roots) or _is_real(fact) and value.depends == LEARNED
            if self.exit is None and (learned or value.roots and fact.dtype != "bool"):
                self.exit = event.index
                if learned:
                    self._learned.add(event.index)

    def _differs_by_layer(self) -> bool:
        """Return whether equal layers met other rows: another number of them, other parts of a tensor, or none.

        Layers that ran before the first value left cannot depend on it.
        """
        rows: defaultdict[int, Fraction] = defaultdict(Fraction)
        late: set[int] = set()
        read: set[int] = set()
        for event in self._trace.operations():
            read.update(fact.storage for fact in event.tensors())
            for _, product in self._products.get(event.index, ()):
                for weight in {weight_of(self._trace, fact) for fact in product.operands} - {None}:
                    if weight not in rows and event.index > self.exit:
                        late.add(weight)
                    rows[weight] += Fraction(product.macs, max(1, prod(self._trace.parameters[weight][1])))
        groups: defaultdict[tuple, list[int]] = defaultdict(list)
        for weight in self._trace.weights:
            parts = weight.name.split(".")
            for place, part in enumerate(parts[:-1]):
                folded = (*parts[:place], "*", *parts[place + 1 :])
                groups[(folded, part.isdigit(), weight.shape)].append(weight.storages[0])
            if parts[-1].isdigit():
                groups[((*parts[:-1], "*"), True, weight.shape)].append(weight.storages[0])
        for (_, is_list, _), weights in groups.items():
            if late.isdisjoint(weights):
                continue
            if len({weight in read for weight in weights}) > 1:
                return True
            if is_list and len({rows[weight] for weight in weights}) > 1:
                return True
            for by_weight in self._slices.values() if is_list else ():
                parts = [frozenset(by_weight[weight]) for weight in weights if weight in by_weight]
                if len(set(parts)) > 1:
                    return True
        return False


def parameter_of(trace: Trace, fact: TensorFact) -> int | None:
    """Return the storage of the parameter that a tensor views, copies or gathers from; None for other tensors."""
    while fact.storage not in trace.parameters and fact.source is not None:
        event = trace.events[fact.source]
        first = next(event.tensors(), None)
        if first is None or base(event.name) not in _FOLLOWED:
            return None
        fact = first
    return fact.storage if fact.storage in trace.parameters else None


def weight_of(trace: Trace, fact: TensorFact) -> int | None:
    """Return the storage of the parameter that a tensor is made of; None for rows of an embedding, which are tokens."""
    source = fact.source
    while source is not None and base(trace.events[source].name) in _FOLLOWED:
        event = trace.events[source]
        if base(event.name) == "embedding":
            return None
        first = next(event.tensors(), None)
        source = first and first.source
    return parameter_of(trace, fact)


def _is_real(fact: TensorFact) -> bool:
    return fact.dtype.startswith(("float", "bfloat", "complex"))


def _is_broadcast(mask: TensorFact, out: TensorFact) -> bool:
    """Return whether a mask with dimensions is repeated along a dimension of a result."""
    if not mask.shape:
        return False
    missing = len(out.shape) - len(mask.shape)
    sizes = (1,) * missing + mask.shape
    steps = (0,) * missing + (mask.strides or (1,) * len(mask.shape))
    return any(size > 1 and (own == 1 or not step) for size, own, step in zip(out.shape, sizes, steps, strict=True))


def _keeps_features(event: Event, name: str) -> bool:
    """Return whether an operation takes or writes whole rows: its integers or mask leave a dimension out."""
    first = event.args[0]
    if name in ("index_select", "index_add", "index_copy", "index_reduce", "embedding"):
        return len(first.shape) > 1
    chosen = [fact for fact in tensors_in((event.args[1:], event.kwargs)) if not _is_real(fact)]
    if "index" in name:
        taken = sum(len(fact.shape) if fact.dtype == "bool" else 1 for fact in chosen)
        return taken < len(first.shape)
    return any(0 in (fact.strides or ()) for fact in chosen)
