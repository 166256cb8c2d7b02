"""Follow the values of tensors through a trace: fills, inputs, copies, and products that they contain."""

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from math import prod

from headcount.bench.contractions.zero_mac_ops import FREE, GATHERS, base
from headcount.bench.trace.events import Event, TensorFact, Trace, tensors_in

REAL = ("float", "bfloat", "complex")
"""Beginnings of the names of dtypes that products may have."""
PARAMETER, INPUT = 1, 2
"""Upper bound of the dependencies of a value: inputs, parameters, both, or 0 for neither."""
MAX_PARTS = 64
"""Writes to parts of a storage that are distinguished; with more, the storage has one value."""

_FILLS = frozenset(
    "empty empty_like empty_strided full full_like new_empty new_empty_strided new_full new_ones ones ones_like"
    " scalar_tensor fill".split()
)
_ZEROS = frozenset("new_zeros zeros zeros_like zero".split())
"""Initial values of sums and states: adding them adds nothing; multiplying them counts as for later steps."""

_SCALES = frozenset(
    "add sub rsub neg div true_divide conj_physical _conj_physical native_dropout _masked_scale nan_to_num positive"
    " native_dropout_backward".split()
)
"""Linear in the first tensor, whatever the others are; additions are those of a number."""
_INDEXES = frozenset("index _unsafe_index embedding".split())
_INDEXED_WRITES = frozenset("index_put _index_put_impl _unsafe_index_put".split())
_SHUFFLES = frozenset(
    "gather take scatter put masked_scatter masked_select sort topk view reshape pixel_shuffle pixel_unshuffle rot90"
    " block_diag diag_embed as_strided_scatter diagonal_scatter to_padded_tensor nested_to_padded_tensor"
    " _jagged_to_padded_dense_forward _padded_dense_to_jagged_forward _to_sparse _to_sparse_csr _to_sparse_csc"
    " _coalesce".split()
)
"""They move values along several axes at once."""
_TARGETED = _INDEXED_WRITES | {"scatter", "put", "masked_scatter", "as_strided_scatter", "diagonal_scatter"}
"""They write into a copy of their first argument, whose values stay where they are."""
_JOINS = {"cat": 1, "stack": 1, "slice_scatter": 2, "select_scatter": 2, "index_copy": 1}
"""Position of the argument that names the axis of concatenation."""
_PERMUTES = frozenset({"permute", "transpose", "t"})
_RESHAPES = frozenset("view _unsafe_view _reshape_alias squeeze".split())
_NEW_AXIS = frozenset({"stack", "select_scatter"})
_CHANGES_VALUES = _SCALES | {"tril", "triu", "where", "masked_fill", "index_fill"}
MOVES = FREE | GATHERS | _CHANGES_VALUES | _INDEXED_WRITES | _SHUFFLES | _JOINS.keys() | {"complex"}
"""Operations whose results contain moved or scaled values of their operands."""


# The layout of a tensor in memory, which identifies an index of one view in other views, copies and sums


class Mark:
    """The product whose values run along an index, or a union of marks in ``parts``. Each is collected once.

    A union only refers to its parts, so that a sum of thousands of terms stays linear.
    """

    __slots__ = ("axis", "collected", "parts", "product", "seen")

    def __init__(self, product: int | None = None, axis: int = -1, parts: tuple["Mark", ...] = ()) -> None:
        self.product = product
        self.axis = axis
        self.parts = parts
        self.collected = self.seen = False

    def collect(self, flag: str = "collected") -> list[tuple[int, int]]:
        """Return the (product, axis) pairs that no earlier call with this flag returned."""
        out, waiting = [], [self]
        while waiting:
            mark = waiting.pop()
            if getattr(mark, flag):
                continue
            setattr(mark, flag, True)
            if mark.product is not None:
                out.append((mark.product, mark.axis))
            waiting += mark.parts
        return out

    @staticmethod
    def union(*marks: "Mark | None") -> "Mark | None":
        """Return one mark for several; None for none."""
        found = list(dict.fromkeys(mark for mark in marks if mark is not None))
        if len(found) < 2:
            return found[0] if found else None
        return Mark(parts=tuple(found))


@dataclass(slots=True)
class Axis:
    """A size and a stride in memory, whether values vary along it (None: unknown), and the mark of its products."""

    size: int
    stride: int
    varies: bool | None = True
    mark: Mark | None = None

    def overlaps(self, size: int, stride: int) -> bool:
        """Return whether an index of this size and stride runs over a part of this axis; False for stride 0."""
        if self.size < 2 or size < 2:
            return False
        return stride < self.stride * self.size and self.stride < stride * size


def view_axes(stored: tuple[Axis, ...], fact: TensorFact) -> tuple[Axis, ...]:
    """Return the axes of a view of a storage whose axes are ``stored``.

    Strides do not tell what an index of size one runs over: it has all marks, and whether it varies is unknown. Each
    index of a sparse or nested tensor has all marks, which has one index if it has no shape.
    """
    if fact.strides is None:
        everything = Mark.union(*(axis.mark for axis in stored))
        return tuple(Axis(size, 0, True, everything) for size in fact.shape or (fact.numel,))
    if len(fact.shape) == len(stored) and all(
        axis.size == size and (axis.stride == stride or size < 2)
        for axis, size, stride in zip(stored, fact.shape, fact.steps, strict=True)
    ):
        return stored
    out = []
    for size, stride in zip(fact.shape, fact.steps, strict=True):
        overlapping = [axis for axis in stored if size == 1 or axis.overlaps(size, stride)]
        varies = bool(stride) and (not overlapping or any_varies(overlapping))
        out.append(Axis(size, stride, None if size == 1 else varies, Mark.union(*(axis.mark for axis in overlapping))))
    return tuple(out)


def any_varies(axes: Iterable[Axis]) -> bool | None:
    """Return whether values vary along any of the axes; None if that is unknown."""
    found = {axis.varies for axis in axes}
    return True if True in found else None if None in found else False


def default_axes(fact: TensorFact, is_fill: bool = False) -> tuple[Axis, ...]:
    """Return the axes of a tensor without a known layout: it does not vary where it is expanded.

    A fill varies where other values are written into it later, not along an index of size one.
    """
    strides = fact.steps or (1,) * len(fact.shape)
    sizes = zip(fact.shape, strides, strict=True)
    return tuple(Axis(size, stride, stride != 0 and not (is_fill and size == 1)) for size, stride in sizes)


def align_axes(axes: Sequence[Axis], shape: Sequence[int]) -> list[Axis]:
    """Return the axes aligned with a shape as by broadcasting."""
    missing = len(shape) - len(axes)
    return [Axis(0, 0, False)] * missing + list(axes[max(-missing, 0) :])


def share_elements(one: TensorFact, other: TensorFact) -> bool:
    """Return whether two views of a storage have a common element; True where their strides differ."""
    if one.strides is None or (one.shape, one.strides) != (other.shape, other.strides):
        return True
    strides = sorted(zip(one.strides, one.shape, strict=True), reverse=True)
    distances = {one.offset - other.offset}
    for stride, size in strides:
        if stride:
            steps = {(left, left // stride + more) for left in distances for more in (0, 1)}
            distances = {left - step * stride for left, step in steps if abs(step) < size}
    return 0 in distances


# Values


@dataclass(slots=True)
class Value:
    """The values of a tensor. ``axes`` are its own or, as stored, those of its memory; None is the default.

    ``term`` marks all products in the sums that the values are, ``depends`` is PARAMETER, INPUT or 0. ``is_constant``:
    one constant value; ``is_zero``: all zero; ``is_product_sum``: a sum of products only; ``products``: events of
    products by the origin of their operands, and with its place that of which a part was added; ``origin``: the
    storage it was copied from; ``chain``: the last operations; ``identity``: that of the tensor that it is a copy of.
    """

    axes: tuple[Axis, ...] | None = None
    term: Mark | None = None
    depends: int = 0
    is_constant: bool = False
    is_zero: bool = False
    is_product_sum: bool = False
    products: Mapping[tuple, tuple[int, tuple | None]] = field(default_factory=dict)
    origin: int = -1
    chain: tuple[str, ...] = ()
    identity: tuple | None = None


class Dataflow:
    """The values of all storages written so far."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._stored: dict[int, Value] = {}
        self._first: dict[int, TensorFact] = {}
        self._inserted: dict[tuple, frozenset[int]] = {}
        self._parts: dict[int, list[tuple[TensorFact, Value]]] = {}
        for fact in tensors_in((trace.args, trace.kwargs)):
            self._first.setdefault(fact.storage, fact)

    def stored(self, fact: TensorFact) -> Value:
        """Return the values of the storage of ``fact``."""
        value = self._stored.get(fact.storage)
        if value is None:
            value = self._stored[fact.storage] = Value(depends=self._given(fact), origin=fact.storage)
        return value

    def values(self, fact: TensorFact) -> Value:
        """Return the values of ``fact``; in a storage that is written in parts, those of its part."""
        value, parts = self.stored(fact), self._parts.get(fact.storage, ())
        if 0 < len(parts) < MAX_PARTS:
            last = max((n for n, (part, _) in enumerate(parts) if part.place == fact.place), default=0)
            read = [written for part, written in parts[last:] if share_elements(part, fact)]
            value = replace(union(read), axes=value.axes, depends=value.depends, origin=value.origin, chain=value.chain)
        if value.term and value.term.product is not None and fact.numel < self._first[fact.storage].numel:
            products = {**value.products, ("part", value.term.product): (value.term.product, fact.place)}
            return replace(value, products=products)
        return value

    def axes(self, fact: TensorFact) -> tuple[Axis, ...]:
        """Return the axes of ``fact``."""
        value = self.stored(fact)
        is_fill = value.is_constant or value.is_zero
        axes = default_axes(fact, is_fill) if value.axes is None else view_axes(value.axes, fact)
        inserted = self._inserted.get(fact.place) if 1 in fact.shape else None
        return tuple(Axis(1, 0, False) if n in inserted else axis for n, axis in enumerate(axes)) if inserted else axes

    def identity(self, fact: TensorFact) -> tuple:
        """Return a key that a tensor and its copies share."""
        return self.stored(fact).identity or (fact.source, *fact.place)

    def _given(self, fact: TensorFact) -> int:
        """Return what a tensor without a producer in the trace depends on."""
        if fact.storage in self._trace.parameters:
            return PARAMETER
        is_input = fact.storage not in self._trace.buffers and fact.source is None and _is_real(fact)
        return INPUT if is_input else 0

    def scales(self, fact: TensorFact) -> bool:
        """Return whether a product with ``fact`` is a scaling: by a fill, a mask or one number.

        An activation with dimensions is none at any size; a parameter or constant of one element is.
        """
        value = self.stored(fact)
        one = fact.numel < 2 and value.depends < INPUT
        return not (fact.shape or fact.parts) or one or fact.dtype == "bool" or value.is_constant

    def is_moved(self, fact: TensorFact) -> bool:
        """Return whether ``fact`` is a part or a moved copy of a tensor."""
        first, weight = self._first.get(fact.storage), self._trace.parameters.get(fact.storage)
        part = bool(fact.offset) or first is not None and fact.numel < first.numel
        return part or self.stored(fact).origin != fact.storage or bool(weight and prod(weight[1]) > fact.numel)

    # Results

    def is_written(self, event: Event, out: TensorFact, facts: Sequence[TensorFact]) -> bool:
        """Return whether ``event`` makes new values of ``out``, which is no view of ``facts``."""
        if out.storage in self._trace.parameters or out.storage in self._trace.buffers or base(event.name) == "set":
            return False
        return bool(event.writes) or all(fact.storage != out.storage for fact in facts)

    def put(self, event: Event, out: TensorFact, value: Value, facts: Sequence[TensorFact]) -> None:
        """Store the values that ``event`` computes from ``facts``, merged with the rest where it writes a part."""
        before = [self.stored(fact) for fact in facts]
        self._first.setdefault(out.storage, out)
        depends = INPUT if value.is_zero else max((one.depends for one in before), default=0)
        chain = (base(event.name), *(before[0].chain[:2] if before else ()))
        if event.writes and out.numel < self._first[out.storage].numel:
            old = self.stored(out)
            parts = self._parts.setdefault(out.storage, [(self._first[out.storage], old)])
            if len(parts) < MAX_PARTS:
                parts.append((out, value))
            axes, term = self._written(out, old, value)
            depends = max(depends, old.depends)
            self._stored[out.storage] = Value(axes, term, depends, origin=old.origin, chain=old.chain)
            return
        self._parts.pop(out.storage, None)
        axes = value.axes
        if out.strides is None:
            axes = (Axis(out.stored, 1, True, value.term),) if out.stored else None
        elif value.term is None and all(x.varies and x.mark is None for x in axes or ()):
            axes = None
        elif axes is not None:
            strided = zip(axes, out.shape, out.steps, strict=True)
            axes = tuple(Axis(size, stride, axis.varies, axis.mark) for axis, size, stride in strided)
        origin = value.origin if value.origin >= 0 else out.storage
        self._stored[out.storage] = replace(value, axes=axes, depends=depends, origin=origin, chain=chain)

    def _written(self, target: TensorFact, old: Value, value: Value) -> tuple[tuple[Axis, ...], Mark | None]:
        """Return axes and term of a storage, a part of which is written: other axes tell products from each other."""
        axes = list(old.axes if old.axes is not None else default_axes(self._first[target.storage]))
        term = Mark.union(old.term, value.term)
        slots = term if old.term and value.term else None
        reached = set()
        for size, stride, new in zip(target.shape, target.steps or (), value.axes or default_axes(target), strict=True):
            for number, axis in enumerate(axes):
                if axis.overlaps(size, stride):
                    reached.add(number)
                    axes[number] = replace(axis, varies=True, mark=Mark.union(axis.mark, new.mark))
        for number in set(range(len(axes))) - reached:
            axes[number] = replace(axes[number], varies=True, mark=Mark.union(axes[number].mark, slots))
        return tuple(axes), term

    def follow_ones(self, event: Event, fact: TensorFact, out: TensorFact) -> None:
        """Note which axes of size one in a view of ``fact`` are no index of its values, whatever their size."""
        name, rank = base(event.name), len(out.shape)
        axes = self.axes(fact)
        at = {n for n, axis in enumerate(axes) if axis.size == 1 and axis.varies is False}
        if name == "unsqueeze":
            new = event.argument(1) % rank
            at = {n + (n >= new) for n in at} | {new}
        elif name in _PERMUTES:
            order = _permutation(event, name, rank)
            at = {order.index(n) for n in at}
        elif name in _RESHAPES:
            # An axis of size one stays after as many elements; where a size is split, a new one may be an index.
            ones = [n for n, size in enumerate(fact.shape) if size == 1]
            before = {prod(fact.shape[:n]) for n in at} - {prod(fact.shape[:n]) for n in ones if n not in at}
            at = {n for n in range(rank) if prod(out.shape[:n]) in before}
        elif len(fact.shape) != rank:
            at = set()
        self._inserted[out.place] = frozenset(n for n in at if out.shape[n] == 1)

    def new(self, event: Event, facts: Sequence[TensorFact]) -> Value:
        """Return values of unknown origin: fills, zeros, or values that depend on ``facts``."""
        name = base(event.name)
        is_zero = name in _ZEROS
        of_constants = bool(facts) and not is_zero and all(self.stored(fact).is_constant for fact in facts)
        return Value(is_constant=name in _FILLS or of_constants, is_zero=is_zero)

    def moved(self, event: Event, facts: Sequence[TensorFact], out: TensorFact) -> Value:
        """Return the values of ``facts`` where an operation of MOVES puts them."""
        name = base(event.name)
        if name in _SCALES:
            sources = [next((fact for fact in facts if not self.scales(fact)), facts[0])]
        else:
            sources = facts[1:2] if name == "copy" else [fact for fact in facts if _is_real(fact)] or facts[:1]
        axes = [self.axes(fact) for fact in sources]
        kept = 1 if name in _TARGETED else 0
        columns = [*axes[:kept], *(_moved_axes(event, name, own, out) for own in axes[kept:])]
        value = self.merged(event, [self.values(fact) for fact in sources], columns, out)
        if name in ("_to_copy", "clone") and sources[0].shape == out.shape:
            return replace(value, identity=self.identity(sources[0]))
        return value

    def merged(self, event: Event, values: Sequence[Value], columns: Sequence[Sequence[Axis]], out) -> Value:
        """Return one value of several, whose axes in ``out`` are ``columns``."""
        name = base(event.name)
        axes = [
            Axis(size, 0, any_varies(at), Mark.union(*(x.mark for x in at)))
            for size, at in zip(out.shape, zip(*columns, strict=True), strict=True)
        ]
        whole = union(values)
        if name in _JOINS and axes:
            dim = event.argument(_JOINS[name], default=0) % len(axes)
            slots = whole.term if sum(value.term is not None for value in values) > 1 else None
            axes[dim] = replace(axes[dim], varies=True, mark=Mark.union(axes[dim].mark, slots))
        is_constant = all(value.is_constant for value in values)
        origin = values[0].origin if len(values) == 1 and name not in _CHANGES_VALUES else -1
        return replace(whole, axes=tuple(axes), is_constant=is_constant, origin=origin)


def union(values: Sequence[Value]) -> Value:
    """Return the products of several values as one: a sum of products where all are such sums or zeros."""
    filled = [value.products for value in values if value.products]
    return Value(
        term=Mark.union(*(value.term for value in values)),
        is_zero=all(value.is_zero for value in values),
        is_product_sum=any(v.is_product_sum for v in values) and all(v.is_product_sum or v.is_zero for v in values),
        products=reduce(operator.or_, filled) if filled else {},
    )


def is_fill(trace: Trace, fact: TensorFact, before: int) -> bool:
    """Return whether the events up to ``before`` give a tensor one constant value, by fills and copies alone."""
    waiting, written = {fact.storage}, set[int]()
    while waiting:
        storage = waiting.pop()
        written.add(storage)
        writers = [event for event in trace.operations() if event.index < before and _writes(event, storage)]
        for event in writers:
            name, sources = base(event.name), {source.storage for source in event.tensors()}
            if name in _FILLS:
                continue
            if name not in MOVES or not sources:
                return False
            waiting |= sources - written
        if not writers:
            return False
    return True


def _writes(event: Event, storage: int) -> bool:
    """Return whether ``event`` makes or changes the values of a storage; a view of it does not."""
    is_result = any(out.storage == storage for out in tensors_in(event.out))
    return is_result and (bool(event.writes) or all(fact.storage != storage for fact in event.tensors()))


def broadcast(axes: Sequence[Axis], shape: Sequence[int]) -> list[Axis]:
    """Return ``axes`` in a result of an elementwise operation: they vary where they are not repeated."""
    return [
        x if x.size == size else Axis(size, 0, False) for x, size in zip(align_axes(axes, shape), shape, strict=True)
    ]


def _moved_axes(event: Event, name: str, axes: tuple[Axis, ...], out: TensorFact) -> list[Axis]:
    if name in _PERMUTES and len(axes) == len(out.shape):
        return [axes[n] for n in _permutation(event, name, len(axes))]
    if name in _NEW_AXIS and len(axes) < len(out.shape):
        dim = event.argument(_JOINS[name], default=0) % len(out.shape)
        axes = (*axes[:dim], Axis(1, 0, False), *axes[dim:])
    if name in _INDEXES or name in _INDEXED_WRITES:
        indexed = _indexed_axes(event, name, axes, out)
        if indexed is not None:
            return indexed
    elif len(axes) <= len(out.shape) and name not in _SHUFFLES:
        grown = name == "constant_pad_nd"
        return [
            x if x.size == size else replace(x, varies=x.size > 1 or grown)
            for x, size in zip(align_axes(axes, out.shape), out.shape, strict=True)
        ]
    # any axis of the result may run over any index of the product
    everything = Mark.union(*(axis.mark for axis in axes))
    ones = {n for n, axis in enumerate(axes) if axis.varies is False} if len(axes) == len(out.shape) else set()
    return [axes[n] if n in ones and size == 1 else Axis(size, 0, True, everything) for n, size in enumerate(out.shape)]


def _permutation(event: Event, name: str, rank: int) -> list[int]:
    """Return which axis of the operand each axis of a permuted result is; torch's prims.transpose takes them all."""
    dims = event.args[1:] or (0, 1)
    if isinstance(dims[0], tuple):
        return [dim % rank for dim in dims[0]]
    order = list(range(rank))
    if rank > 1:
        one, other = (dim % rank for dim in dims[:2])
        order[one], order[other] = other, one
    return order


def _indexed_axes(event: Event, name: str, axes: tuple[Axis, ...], out: TensorFact) -> list[Axis] | None:
    """Return the axes after ``index`` or ``index_put`` with neighbouring integer indices; None for others."""
    given = (event.args[1],) if name == "embedding" else event.args[1]
    at = [n for n, index in enumerate(given) if isinstance(index, TensorFact)]
    if not at or at[-1] - at[0] + 1 > len(at) or any(given[n].dtype == "bool" for n in at):
        return None
    first, last, rank = at[0], at[-1] + 1, max(len(given[n].shape) for n in at)
    if name in _INDEXES:
        mark = Mark.union(*(axis.mark for axis in axes[first:last]))
        moved = [*axes[:first], *[Axis(0, 0, any_varies(axes[first:last]), mark)] * rank, *axes[last:]]
    else:
        inner = len(out.shape) - (last - first) + rank
        if len(axes) > inner:
            return None
        axes = [Axis(0, 0, False)] * (inner - len(axes)) + list(axes)
        mark = Mark.union(*(axis.mark for axis in axes[first : first + rank]))
        moved = [*axes[:first], *[Axis(0, 0, True, mark)] * (last - first), *axes[first + rank :]]
    return moved if len(moved) == len(out.shape) else None


def _is_real(fact: TensorFact) -> bool:
    return fact.dtype.startswith(REAL)
