"""Products written elementwise and summed afterwards, found by following data through a trace.

The convention. An elementwise product of two tensors, each of more than one element and neither a constant fill, is a
contraction where

    summed     a reduction, a running sum or an accumulation runs over an index that both operands carry,
    added      both sides of an addition are nothing but products, or two products of the same pair of tensors at
               other positions meet in one (taps of a convolution, experts in a loop); ``lerp`` is such an addition,
    outer      each operand carries an index that the other lacks: a matrix product over an index of size one,
    einsum     torch.einsum wrote a product over an index of size one so,
    gradient   it is the gradient of ``dot`` or ``mv`` (one number times a vector is a scaling elsewhere).

Its size is the number of multiplications. A tensor with itself is a square, named apart, as norms and variances are;
so is a product that is added to anything else (gates, residual scales). Rotations by angles that no input or
parameter decides are neither.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import prod

from headcount.bench.contractions.layout import Axis, Layout, Mark, plain, together, written
from headcount.bench.contractions.no_contraction import FREE, GATHERS, base
from headcount.bench.trace.events import FUNCTION, Event, TensorFact, Trace, tensors_in

_OUTER = "outer product"
CONTRACTION, SQUARE, SCALED = "elementwise_contraction", "square_sum", "scaled_addition"

_FILLS = frozenset(
    "empty empty_like empty_strided full full_like new_empty new_empty_strided new_full new_ones ones ones_like"
    " scalar_tensor fill".split()
)
_ZEROS = frozenset("new_zeros zeros zeros_like zero".split())
"""Where sums and states begin: nothing is added by them, but multiplying them is a step like the ones that follow."""
_ADDITIONS = frozenset({"add", "sub", "rsub", "_add_relu"})
_LINEAR = frozenset(
    "add sub rsub neg div true_divide where masked_fill _conj_physical conj_physical native_dropout _masked_scale"
    " native_dropout_backward nan_to_num positive tril triu flip roll constant_pad_nd clone _to_copy contiguous copy"
    " _to lift lift_fresh detach alias expand".split()
)
_SUMS = frozenset(
    "sum mean nansum cumsum trace _adaptive_avg_pool2d _adaptive_avg_pool3d avg_pool2d avg_pool3d".split()
)
_POOLS = {"_adaptive_avg_pool2d": 2, "_adaptive_avg_pool3d": 3, "avg_pool2d": 2, "avg_pool3d": 3}
_ACCUMULATES = frozenset(
    "index_add scatter_add scatter_reduce bincount col2im embedding_dense_backward _unsafe_index_put"
    " _unsafe_masked_index_put_accumulate unfold_backward segment_reduce".split()
)
_OWN_SQUARES = frozenset("linalg_vector_norm norm var std var_mean std_mean mse_loss".split())


@dataclass(frozen=True)
class Hidden:
    """One elementwise product, the operation ``event``: ``call`` says how it was written and summed.

    ``dims``: m kept by i summed; ``kind`` is one of the three above.
    """

    event: int
    path: str
    call: str
    kind: str
    dims: Mapping[str, int]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """Multiplications."""
        return prod(self.dims.values())

    def text(self) -> str:
        """One phrase that names the call, its shapes and its module."""
        shapes = " ".join("x".join(map(str, shape)) or "scalar" for shape in self.shapes)
        return f"{self.call} on {shapes} ({self.size:,} in {self.path or 'the model'})"


@dataclass(slots=True)
class _Product:
    event: Event
    shape: tuple[int, ...]
    square: bool
    how: str = ""
    axes: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Known:
    """A memory as followed so far: ``decided`` by an input or a parameter, ``fill`` one constant value, ``zeros``,
    ``pure`` nothing but a sum of products, ``pairs`` products by where their operands come from."""

    layout: Layout | None = None
    decided: bool = False
    fill: bool = False
    zeros: bool = False
    pure: bool = False
    pairs: Mapping[tuple, int] = field(default_factory=dict)
    origin: int = -1
    chain: tuple[str, ...] = ()
    same: tuple | None = None


def hidden(trace: Trace) -> list[Hidden]:
    """Every elementwise contraction, square and scaled addition of ``trace``, in the order of the products."""
    return _Follower(trace).found()


class _Follower:
    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._known: dict[int, _Known] = {}
        self._first: dict[int, TensorFact] = {}
        self._products: dict[int, _Product] = {}
        self._scaled: dict[int, str] = {}
        for fact in tensors_in((trace.args, trace.kwargs)):
            self._first.setdefault(fact.storage, fact)
        for event in trace.operations():
            if event.out is not None:
                self._step(event)

    def found(self) -> list[Hidden]:
        """What was found, each product once."""
        out = []
        for index, product in self._products.items():
            how = product.how or self._scaled.get(index)
            if not how:
                continue
            kind = SQUARE if product.square else CONTRACTION if product.how else SCALED
            summed = prod(product.shape[axis] for axis in product.axes)
            kept = prod(product.shape) // summed if summed else 0
            dims = {"m": kept, "i": summed} if product.axes else {"m": kept}
            name = product.event.name
            call = name if how == name else f"{name}, {how}"
            shapes = tuple(fact.shape for fact in tensors_in(product.event.args))
            out.append(Hidden(index, product.event.path, call, kind, dims, shapes))
        return out

    # What is known of tensors

    def _of(self, fact: TensorFact) -> _Known:
        known = self._known.get(fact.storage)
        if known is None:
            trace = self._trace
            given = fact.storage not in trace.buffers and fact.dtype.startswith(("float", "bfloat", "complex"))
            known = _Known(
                decided=fact.storage in trace.parameters or given and fact.source is None, origin=fact.storage
            )
            self._known[fact.storage] = known
        return known

    def _axes(self, fact: TensorFact) -> tuple[Axis, ...]:
        known = self._of(fact)
        return known.layout.seen_as(fact) if known.layout else plain(fact)

    def _term(self, fact: TensorFact) -> Mark | None:
        known = self._of(fact)
        return known.layout.term if known.layout else None

    # One operation

    def _step(self, event: Event) -> None:
        name = base(event.name)
        facts = list(tensors_in(event.args))
        outs = list(tensors_in(event.out))
        if name in _SUMS:
            self._reduce(event, name, facts, outs)
        elif name in _OWN_SQUARES:
            self._own_square(event, name, facts)
            self._new(event, name, facts, outs)
        elif name in _ACCUMULATES or name in ("index_put", "_index_put_impl") and _accumulates(event):
            self._accumulate(event, name, facts, outs)
        elif name in ("mul", "addcmul", "lerp", "pow", "square"):
            self._multiply(event, name, facts, outs)
        elif name in _ADDITIONS and len(facts) == 2 and outs:
            self._add(event, name, facts, outs[0])
        elif name == "copy" and len(facts) == 2:
            self._write(event, facts)
        elif name in ("cat", "stack") and outs:
            self._gather(event, name, facts, outs[0])
        elif name in _LINEAR and facts and outs:
            self._elementwise(event, name, facts, outs, kept=True)
        elif name in FREE or name in GATHERS:
            self._move(event, name, facts, outs)
        else:
            self._new(event, name, facts, outs)

    def _new(self, event: Event, name: str, facts: list[TensorFact], outs: list[TensorFact]) -> None:
        """Values of which only their origin is known."""
        zeros = name in _ZEROS
        fill = name in _FILLS or bool(facts) and not zeros and all(self._of(fact).fill for fact in facts)
        for out in outs:
            self._put(event, out, _Known(fill=fill, zeros=zeros), name, facts)

    def _put(self, event: Event, out: TensorFact, known: _Known, name: str, facts: Iterable[TensorFact]) -> None:
        if out.storage in self._trace.parameters or out.storage in self._trace.buffers:
            return
        if not event.writes and any(fact.storage == out.storage for fact in facts):
            return
        facts = list(facts)
        before = [self._of(fact) for fact in facts]
        chain = (name, *(before[0].chain[:2] if before else ()))
        origin = known.origin if known.origin >= 0 else out.storage
        decided = known.zeros or any(fact.decided for fact in before)
        self._first.setdefault(out.storage, out)
        if event.writes and not self._whole(out):
            # A part was written: what is known of the rest stays, but it is no fill any more.
            old = self._of(out)
            self._known[out.storage] = replace(
                old, decided=decided or old.decided, fill=False, zeros=False, pure=False, same=None
            )
            return
        self._known[out.storage] = replace(known, decided=decided, origin=origin, chain=chain)

    def _whole(self, fact: TensorFact) -> bool:
        first = self._first.get(fact.storage)
        return first is None or fact.numel >= first.numel

    # Products

    def _multiply(self, event: Event, name: str, facts: list[TensorFact], outs: list[TensorFact]) -> None:
        if not outs:
            return
        out = outs[0]
        if name == "pow" and event.argument(1, "exponent") != 2 or not facts:
            return self._new(event, name, facts, outs)
        factors = facts[-2:] if name == "addcmul" else [facts[0], facts[-1]] if name == "lerp" else facts
        if name in ("pow", "square"):
            factors = [facts[0], facts[0]]
        of_vectors = event.backward and len(factors) == 2 and self._of_vectors(event)
        tensors = factors if of_vectors else [fact for fact in factors if not self._constant(fact)]
        if len(tensors) < 2 or len(factors) < 2 or out.dtype == "bool":
            return self._elementwise(event, name, facts, outs, kept=name == "mul")
        a, b = tensors
        product = _Product(event, out.shape, square=self._same(a, b))
        self._products[event.index] = product
        first, second = (_aligned(self._axes(fact), out.shape) for fact in (a, b))
        product.how = self._at_once(event, name, product.shape, first, second)
        if of_vectors:
            product.how = "gradient of a product of vectors"
        axes = []
        for number, (size, x, y) in enumerate(zip(out.shape, first, second, strict=True)):
            both = _carried(size, x) and _carried(size, y)
            mark = Mark(event.index, number) if both else together(x.mark, y.mark)
            axes.append((x.varies and x.size > 1 or y.varies and y.size > 1, mark))
        decided = all(self._of(fact).decided for fact in (a, b))
        term = Mark(event.index) if decided and not product.square else None
        pairs = dict.fromkeys(self._pairs(a, b), event.index) if decided else {}
        if name in ("addcmul", "lerp") and len(facts) == 3:
            self._fused_addition(event, facts[0], out, axes, term, pairs)
            return
        known = _Known(written(out, axes, term), pure=term is not None, pairs=pairs)
        self._put(event, out, known, name, (a, b))

    def _constant(self, fact: TensorFact) -> bool:
        return fact.numel < 2 or fact.dtype == "bool" or self._of(fact).fill

    def _same(self, a: TensorFact, b: TensorFact) -> bool:
        return self._identity(a) == self._identity(b)

    def _identity(self, fact: TensorFact) -> tuple:
        own = (fact.storage, fact.source, fact.offset, fact.shape, fact.strides)
        return self._of(fact).same or own

    def _at_once(self, event: Event, name: str, shape: tuple[int, ...], first: list[Axis], second: list[Axis]) -> str:
        """What makes it a contraction where it stands; "" where nothing does."""
        carried = [(_carried(n, x), _carried(n, y)) for n, x, y in zip(shape, first, second, strict=True)]
        if (True, False) in carried and (False, True) in carried:
            return _OUTER
        return name if name == "lerp" else "einsum" if self._by_einsum(event) else ""

    def _by_einsum(self, event: Event) -> bool:
        for outer in self._trace.around(event):
            if outer.what == FUNCTION and outer.name == "einsum" and outer.args and isinstance(outer.args[0], str):
                sides = outer.args[0].replace(" ", "").split("->")
                inputs = sides[0].split(",")
                # Without an arrow, letters that stand once are kept.
                kept = sides[1] if len(sides) > 1 else [x for x in sides[0] if sides[0].count(x) == 1]
                return len(inputs) == 2 and any(x.isalpha() and x not in kept for x in inputs[0] if x in inputs[1])
        return False

    def _of_vectors(self, event: Event) -> bool:
        if event.forward is None:
            return False
        for later in range(event.forward, len(self._trace.events)):
            inner = self._trace.events[later]
            if later > event.forward and (inner.parent is None or inner.parent < event.forward):
                return False
            if base(inner.name) in ("dot", "vdot", "mv", "addmv"):
                return True
        return False

    def _pairs(self, a: TensorFact, b: TensorFact) -> list[tuple]:
        """Keys under which the product of the same tensors at another position is found."""
        one, other = self._of(a), self._of(b)
        out = []
        for fact, known, with_ in ((a, one, other), (b, other, one)):
            first = self._first.get(fact.storage)
            moved = known.origin != fact.storage or fact.offset or first is not None and fact.numel < first.numel
            weight = self._trace.parameters.get(fact.storage)
            if moved or weight and prod(weight[1]) > fact.numel:
                out.append((known.origin, with_.chain))
        return out

    # Sums

    def _count(self, marks: Iterable[Mark | None], how: str) -> None:
        for mark in marks:
            for index, axis in mark.collect() if mark else ():
                product = self._products[index]
                product.how = how if product.how in ("", _OUTER) else product.how
                if axis >= 0:
                    product.axes.add(axis)

    def _reduce(self, event: Event, name: str, facts: list[TensorFact], outs: list[TensorFact]) -> None:
        fact = facts[0]
        rank = len(fact.shape)
        axes = self._axes(fact)
        dims = _dims(event, name, rank)
        summed = f"summed by {name}"
        self._count((axes[dim].mark for dim in dims if dim < rank), summed)
        if name in _POOLS or not outs:
            return self._new(event, name, facts, outs)
        out, term = outs[0], self._term(fact)
        if len(out.shape) == rank:
            left = [(axis.varies and (n not in dims or name == "cumsum"), axis.mark) for n, axis in enumerate(axes)]
        else:
            left = [(axis.varies, axis.mark) for n, axis in enumerate(axes) if n not in dims]
        if len(left) != len(out.shape):
            return self._new(event, name, facts, outs)
        known = self._of(fact)
        layout = written(out, left, term)
        self._put(event, out, _Known(layout, fill=known.fill, pure=known.pure, pairs=known.pairs), name, facts)

    def _accumulate(self, event: Event, name: str, facts: list[TensorFact], outs: list[TensorFact]) -> None:
        named = list(tensors_in(event.kwargs.get("weights")))
        source = named or facts[1:] or facts
        if name in ("scatter_reduce", "segment_reduce") and not any(r in event.args for r in ("sum", "mean")):
            return self._new(event, name, facts, outs)
        for fact in source:
            marks = {axis.mark for axis in self._axes(fact)}
            self._count((*marks, self._term(fact)), f"summed by {name}")
        self._new(event, name, facts, outs)

    def _own_square(self, event: Event, name: str, facts: list[TensorFact]) -> None:
        order = event.argument(1, "ord", 2)
        if name in ("norm", "linalg_vector_norm") and order not in (2, None):
            return
        fact = max(facts, key=lambda fact: fact.numel, default=None)
        if fact is not None and fact.numel > 1:
            self._products[event.index] = _Product(event, fact.shape, True, how=event.name)

    def _add(self, event: Event, name: str, facts: list[TensorFact], out: TensorFact) -> None:
        a, b = facts
        self._meet(event, a, b, name)
        one, other = (self._of(fact) for fact in facts)
        pairs = {**one.pairs, **other.pairs} if one.pairs and other.pairs else one.pairs or other.pairs
        pure = (one.pure or other.pure) and all(known.pure or known.zeros for known in (one, other))
        self._combine(event, name, facts, out, pairs, pure)

    def _meet(self, event: Event, a: TensorFact, b: TensorFact, name: str) -> None:
        one, other = self._of(a), self._of(b)
        terms = [mark for mark in (self._term(a), self._term(b)) if mark]
        if one.pure and other.pure and a != b:
            self._count(terms, f"summed by {name}")
            return
        for key in other.pairs if len(other.pairs) < len(one.pairs) else one.pairs:
            if key in one.pairs and key in other.pairs and a != b:
                for index in {one.pairs[key], other.pairs[key]}:
                    self._products[index].how = self._products[index].how or f"summed by {name}"
        for mark, beside in ((self._term(a), other), (self._term(b), one)):
            if mark and not (beside.fill or beside.zeros):
                for index, _ in mark.collect("seen"):
                    self._scaled.setdefault(index, f"added by {name}")

    def _fused_addition(self, event, start, out, axes, term, pairs) -> None:
        """addcmul and lerp: a product that is added in the same call."""
        known = self._of(start)
        old = self._term(start)
        if term and old and known.pure:
            self._count((old, term), f"summed by {event.name}")
        for key in pairs:
            if key in known.pairs:
                for index in (known.pairs[key], event.index):
                    self._products[index].how = self._products[index].how or f"summed by {event.name}"
        if not known.zeros:
            self._scaled.setdefault(event.index, event.name)
        aligned = _aligned(self._axes(start), out.shape)
        merged = [(v or x.varies, together(mark, x.mark)) for (v, mark), x in zip(axes, aligned, strict=True)]
        layout = written(out, merged, together(term, old))
        pure = term is not None and (known.pure or known.zeros)
        facts = list(tensors_in(event.args))
        self._put(event, out, _Known(layout, pure=pure, pairs={**known.pairs, **pairs}), base(event.name), facts)

    # Moves and linear operations

    def _combine(self, event, name, facts, out, pairs, pure) -> None:
        columns = [_aligned(self._axes(fact), out.shape) for fact in facts if len(fact.shape) <= len(out.shape)]
        axes = [
            (any(x.varies and x.size > 1 for x in at), together(*(x.mark for x in at)))
            for at in zip(*columns, strict=True)
        ]
        if len(axes) != len(out.shape):
            axes = [(True, None)] * len(out.shape)
        layout = written(out, axes, together(*(self._term(fact) for fact in facts)))
        fill = all(self._of(fact).fill for fact in facts)
        self._put(event, out, _Known(layout, fill=fill, pure=pure, pairs=pairs), name, facts)

    def _elementwise(self, event, name, facts, outs, kept: bool) -> None:
        """Values one by one; ``kept``: linear in the first tensor that is no constant."""
        out = outs[0]
        if name in ("div", "true_divide") and len(facts) == 2:
            # Linear in the numerator; the denominator only decides along what values differ.
            kept = True
        source = next((fact for fact in facts if not self._constant(fact)), facts[0]) if facts else None
        if name == "where" and len(facts) == 3:
            linear = facts[1:]
        else:
            linear = [source] if source else []
        known = self._of(source)
        if not event.writes and out.storage in {fact.storage for fact in facts}:
            return
        if not kept or any(len(fact.shape) > len(out.shape) for fact in facts):
            return self._new(event, name, facts, outs)
        moved = name in ("roll", "flip", "constant_pad_nd", "_to_copy", "clone", "contiguous")
        columns = [_aligned(self._axes(fact), out.shape) for fact in facts]
        marked = [_aligned(self._axes(fact), out.shape) for fact in linear]
        axes = [
            (any(x.varies and x.size > 1 for x in at), together(*(x.mark for x in marks)))
            for at, marks in zip(zip(*columns, strict=True), zip(*marked, strict=True), strict=True)
        ]
        if name == "constant_pad_nd":
            axes = [(True, mark) for _, mark in axes]
        layout = written(out, axes, together(*(self._term(fact) for fact in linear)))
        fill = all(self._of(fact).fill for fact in facts)
        same = self._identity(source) if name in ("_to_copy", "clone") and source.shape == out.shape else None
        origin = known.origin if moved else -1
        for result in outs[:1]:
            self._put(
                event,
                result,
                _Known(
                    layout, fill=fill, zeros=known.zeros, pure=known.pure, pairs=known.pairs, origin=origin, same=same
                ),
                name,
                facts,
            )

    def _move(self, event: Event, name: str, facts: list[TensorFact], outs: list[TensorFact]) -> None:
        """Values somewhere else: along the same axes where there are as many, else anywhere."""
        if not facts:
            return self._new(event, name, facts, outs)
        source = facts[1] if name == "embedding" and len(facts) > 2 else facts[0]
        known, axes, term = self._of(source), self._axes(source), self._term(source)
        everything = together(*(axis.mark for axis in axes))
        for out in outs:
            if not event.writes and out.storage == source.storage:
                continue
            if len(out.shape) == len(axes):
                moved = [
                    (True if axis.size != size else axis.varies, axis.mark)
                    for axis, size in zip(axes, out.shape, strict=True)
                ]
            else:
                moved = [(True, everything)] * len(out.shape)
            layout = written(out, moved, term)
            self._put(
                event,
                out,
                _Known(
                    layout, fill=known.fill, zeros=known.zeros, pure=known.pure, pairs=known.pairs, origin=known.origin
                ),
                name,
                facts,
            )

    def _gather(self, event: Event, name: str, facts: list[TensorFact], out: TensorFact) -> None:
        """cat and stack: several products along the new index are summed with it."""
        dim = event.argument(1, "dim", 0) % max(len(out.shape), 1)
        terms = [mark for mark in (self._term(fact) for fact in facts) if mark]
        columns = []
        for fact in facts:
            axes = [(axis.varies, axis.mark) for axis in self._axes(fact)]
            if name == "stack":
                axes.insert(dim, (True, None))
            if len(axes) == len(out.shape):
                columns.append(axes)
        axes = [(any(v for v, _ in at), together(*(mark for _, mark in at))) for at in zip(*columns, strict=True)]
        if len(axes) == len(out.shape) and axes:
            slots = together(*terms) if len(terms) > 1 else None
            axes[dim] = (True, together(axes[dim][1], slots))
            pure = len(terms) == len(facts)
            known = _Known(written(out, axes, together(*terms)), pure=pure)
            self._put(event, out, known, name, facts)
        else:
            self._new(event, name, facts, [out])

    def _write(self, event: Event, facts: list[TensorFact]) -> None:
        """copy_: into all of a memory, or into a part of it, whose other indices then tell products apart."""
        target, source = facts
        if target.storage in self._trace.parameters or target.storage in self._trace.buffers:
            return
        if self._whole(target):
            layout_of = written(
                target, [(a.varies, a.mark) for a in _aligned(self._axes(source), target.shape)], self._term(source)
            )
            known = self._of(source)
            self._put(
                event,
                target,
                _Known(layout_of, fill=known.fill, zeros=known.zeros, pure=known.pure, pairs=known.pairs),
                "copy",
                (source,),
            )
            return
        old, term = self._of(target), self._term(source)
        first = self._first[target.storage]
        axes = list(old.layout.axes if old.layout else plain(first))
        into = _aligned(self._axes(source), target.shape)
        reached: set[int] = set()
        for size, stride, axis in zip(target.shape, target.strides or (), into, strict=False):
            for number, mine in enumerate(axes):
                if stride and mine.meets(size, stride):
                    reached.add(number)
                    axes[number] = Axis(mine.size, mine.stride, True, together(mine.mark, axis.mark))
        for number, mine in enumerate(axes):
            if number not in reached and term:
                axes[number] = Axis(mine.size, mine.stride, True, together(mine.mark, term))
        layout = Layout(tuple(axes), together(old.layout.term if old.layout else None, term))
        decided = old.decided or self._of(source).decided
        self._known[target.storage] = _Known(layout, decided, origin=old.origin, chain=old.chain)


def _carried(size: int, axis: Axis) -> bool:
    return axis.size == size and (axis.varies or size == 1)


def _aligned(axes: tuple[Axis, ...], shape: tuple[int, ...]) -> list[Axis]:
    """Axes as broadcasting lines them up with a shape."""
    missing = len(shape) - len(axes)
    if missing < 0:
        return list(axes[-len(shape) :]) if shape else []
    return [Axis(0, 0, False)] * missing + list(axes)


def _dims(event: Event, name: str, rank: int) -> set[int]:
    if name in _POOLS:
        return set(range(max(rank - _POOLS[name], 0), rank))
    dims = None if name == "trace" else event.argument(1, "dim")
    if dims is None or dims == () or isinstance(dims, str):
        return set(range(rank))
    return {dim % max(rank, 1) for dim in (dims if isinstance(dims, tuple) else (dims,))}


def _accumulates(event: Event) -> bool:
    return bool(event.argument(3, "accumulate", False))
