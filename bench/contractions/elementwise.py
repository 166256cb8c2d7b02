"""Find products that are written elementwise and summed afterwards, by following data through a trace.

Convention: an elementwise product of two tensors, each of more than one element and neither a constant fill, is a
contraction where

    summed     a reduction, a running sum or an accumulation runs over an index of both operands,
    added      both terms of an addition are sums of products, or two products of the same pair of tensors at
               different positions are added (taps of a convolution, experts in a loop); ``lerp`` is such an addition,
    outer      each operand has an index that the other lacks: a matrix product over an index of size one,
    einsum     torch.einsum runs a product over an index of size one,
    gradient   it is the gradient of ``dot`` or ``mv`` (elsewhere a number times a vector is a scaling).

Its size is the number of multiplications. Separate kinds are squares (a tensor with itself, norms, variances)
and products that are added to anything else (gates, residual scales). Products with values that do not depend on an
input or a parameter, such as rotary angles, have neither kind.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod

from headcount.bench.contractions.dataflow import Known, Memory
from headcount.bench.contractions.strides import Axis, Mark, aligned, carried, together, written
from headcount.bench.contractions.zero_mac_ops import FREE, GATHERS, base
from headcount.bench.trace.events import FUNCTION, Event, TensorFact, Trace, tensors_in

_OUTER = "outer product"
CONTRACTION, SQUARE, SCALED = "elementwise_contraction", "square_sum", "scaled_addition"

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
_OF_THE_FIRST = frozenset({"col2im", "embedding_dense_backward", "segment_reduce", "unfold_backward"})
"""Operations that sum their first argument; the others add to it."""
_OWN_SQUARES = frozenset("linalg_vector_norm norm var std var_mean std_mean mse_loss".split())


@dataclass(frozen=True)
class Hidden:
    """One elementwise product, the operation ``event``; ``call`` is how it was written and summed.

    ``dims`` are m retained by i summed elements; ``kind`` is one of the three above.
    """

    event: int
    path: str
    call: str
    kind: str
    dims: Mapping[str, int]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """Number of multiplications."""
        return prod(self.dims.values())

    def text(self) -> str:
        """Return one phrase with the call, its shapes and its module."""
        shapes = " ".join("x".join(map(str, shape)) or "scalar" for shape in self.shapes)
        return f"{self.call} on {shapes} ({self.size:,} in {self.path or 'the model'})"


@dataclass(slots=True)
class _Product:
    event: Event
    shape: tuple[int, ...]
    square: bool
    how: str = ""
    axes: set[int] = field(default_factory=set)


def hidden(trace: Trace) -> list[Hidden]:
    """Return the elementwise contractions, squares and scaled additions of ``trace``, in order of the products."""
    return _Follower(trace).found()


class _Follower(Memory):
    def __init__(self, trace: Trace) -> None:
        super().__init__(trace)
        self._products: dict[int, _Product] = {}
        self._scaled: dict[int, str] = {}
        for event in trace.operations():
            if event.out is not None:
                self._step(event)

    def found(self) -> list[Hidden]:
        """Return each product once."""
        out = []
        for index, product in self._products.items():
            how = product.how or self._scaled.get(index)
            if not how:
                continue
            kind = SQUARE if product.square else CONTRACTION if product.how else SCALED
            summed = prod(product.shape[axis] for axis in product.axes)
            kept = prod(product.shape) // summed if summed else 0
            dims = {"m": kept, "i": summed} if product.axes else {"m": kept}
            if product.event.times != 1:
                dims["n"] = product.event.times
            name = product.event.name
            call = name if how == name else f"{name}, {how}"
            shapes = tuple(fact.shape for fact in tensors_in(product.event.args))
            out.append(Hidden(index, product.event.path, call, kind, dims, shapes))
        return out

    # One operation

    def _step(self, event: Event) -> None:
        name = base(event.name)
        facts = list(tensors_in(event.args))
        outs = list(tensors_in(event.out))
        if name in _SUMS:
            self._reduce(event, name, facts, outs)
        elif name in _OWN_SQUARES:
            self._own_square(event, name, facts)
            self._new(event, facts, outs)
        elif name in _ACCUMULATES or name in ("index_put", "_index_put_impl") and event.argument(3):
            self._accumulate(event, name, facts, outs)
        elif name in ("mul", "addcmul", "lerp", "pow", "square"):
            self._multiply(event, name, facts, outs)
        elif name in _ADDITIONS and len(facts) == 2 and outs:
            self._add(event, name, facts, outs[0])
        elif name == "copy" and len(facts) == 2:
            self._write(event, facts)
        elif name in ("cat", "stack") and outs:
            self._gather(event, facts, outs[0])
        elif name in _LINEAR and facts and outs:
            self._elementwise(event, facts, outs, kept=True)
        elif name in FREE or name in GATHERS:
            self._move(event, facts, outs)
        else:
            self._new(event, facts, outs)

    # Products

    def _multiply(self, event: Event, name: str, facts: list[TensorFact], outs: list[TensorFact]) -> None:
        if not outs:
            return
        out = outs[0]
        if name == "pow" and event.args[1] != 2 or not facts:
            return self._new(event, facts, outs)
        factors = facts[-2:] if name == "addcmul" else [facts[0], facts[-1]] if name == "lerp" else facts
        if name in ("pow", "square"):
            factors = [facts[0], facts[0]]
        gradient = event.backward and len(factors) == 2 and of_vectors(self._trace, event)
        tensors = factors if gradient else [fact for fact in factors if not self._constant(fact)]
        if len(tensors) < 2 or len(factors) < 2 or out.dtype == "bool":
            return self._elementwise(event, facts, outs, kept=name == "mul")
        a, b = tensors
        product = _Product(event, out.shape, square=self._same(a, b))
        self._products[event.index] = product
        first, second = (aligned(self._axes(fact), out.shape) for fact in (a, b))
        product.how = self._at_once(event, name, product.shape, first, second)
        if gradient:
            product.how = "gradient of a product of vectors"
        axes = []
        for number, (size, x, y) in enumerate(zip(out.shape, first, second, strict=True)):
            both = carried(size, x) and carried(size, y)
            mark = Mark(event.index, number) if both else together(x.mark, y.mark)
            axes.append((x.varies and x.size > 1 or y.varies and y.size > 1, mark))
        decided = all(self._of(fact).decided for fact in (a, b))
        term = Mark(event.index) if decided and not product.square else None
        pairs = dict.fromkeys(self._pairs(a, b), event.index) if decided else {}
        if name in ("addcmul", "lerp") and len(facts) == 3:
            self._fused_addition(event, facts[0], out, axes, term, pairs)
            return
        known = Known(written(out, axes, term), pure=term is not None, pairs=pairs)
        self._put(event, out, known, (a, b))

    def _at_once(self, event: Event, name: str, shape: tuple[int, ...], first: list[Axis], second: list[Axis]) -> str:
        """Return why it is a contraction regardless of later operations; "" if it is not."""
        both = [(carried(n, x), carried(n, y)) for n, x, y in zip(shape, first, second, strict=True)]
        if (True, False) in both and (False, True) in both:
            return _OUTER
        return name if name == "lerp" else "einsum" if summed_by_einsum(self._trace, event) else ""

    def _pairs(self, a: TensorFact, b: TensorFact) -> list[tuple]:
        """Return the keys that products of the same tensors at different positions share."""
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
            return self._new(event, facts, outs)
        out, term = outs[0], self._term(fact)
        if len(out.shape) == rank:
            left = [(name == "cumsum" if n in dims else axis.varies, axis.mark) for n, axis in enumerate(axes)]
        else:
            left = [(axis.varies, axis.mark) for n, axis in enumerate(axes) if n not in dims]
        if len(left) != len(out.shape):
            return self._new(event, facts, outs)
        known = self._of(fact)
        layout = written(out, left, term)
        self._put(event, out, Known(layout, fill=known.fill, pure=known.pure, pairs=known.pairs), facts)

    def _accumulate(self, event: Event, name: str, facts: list[TensorFact], outs: list[TensorFact]) -> None:
        named = list(tensors_in(event.kwargs.get("weights")))
        source = named or (facts[:1] if name in _OF_THE_FIRST else facts[1:])
        if name in ("scatter_reduce", "segment_reduce") and not any(r in event.args for r in ("sum", "mean")):
            return self._new(event, facts, outs)
        for fact in source:
            marks = {axis.mark for axis in self._axes(fact)}
            self._count((*marks, self._term(fact)), f"summed by {name}")
        self._new(event, facts, outs)

    def _own_square(self, event: Event, name: str, facts: list[TensorFact]) -> None:
        if name in ("norm", "linalg_vector_norm") and event.argument(1) not in (2, None):
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
        self._combine(event, facts, out, pairs, pure)

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
        """Follow addcmul and lerp, which add a product in the same call."""
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
        beside = aligned(self._axes(start), out.shape)
        merged = [(v or x.varies, together(mark, x.mark)) for (v, mark), x in zip(axes, beside, strict=True)]
        layout = written(out, merged, together(term, old))
        pure = term is not None and (known.pure or known.zeros)
        facts = list(tensors_in(event.args))
        self._put(event, out, Known(layout, pure=pure, pairs={**known.pairs, **pairs}), facts)


def _dims(event: Event, name: str, rank: int) -> set[int]:
    if name in _POOLS:
        return set(range(max(rank - _POOLS[name], 0), rank))
    dims = event.argument(1)
    if isinstance(dims, int):
        dims = (dims,)
    if not isinstance(dims, tuple) or not dims:
        # Without dimensions the sum is over all of them.
        return set(range(rank))
    return {dim % max(rank, 1) for dim in dims}


def summed_by_einsum(trace: Trace, event: Event) -> bool:
    """Return whether ``event`` is torch.einsum's product of two operands over a summed index of size one."""
    for outer in trace.around(event):
        if outer.what == FUNCTION and outer.name == "einsum" and outer.args and isinstance(outer.args[0], str):
            inputs, _, kept = outer.args[0].partition("->")
            first, *others = inputs.split(",")
            # Without an arrow, common indices are summed.
            return len(others) == 1 and any(x.isalpha() and x not in kept for x in first if x in others[0])
    return False


def of_vectors(trace: Trace, event: Event) -> bool:
    """Return whether ``event`` differentiates a product with a vector."""
    if event.forward is None:
        return False
    for later in range(event.forward, len(trace.events)):
        inner = trace.events[later]
        if later > event.forward and (inner.parent is None or inner.parent < event.forward):
            return False
        if base(inner.name) in ("dot", "vdot", "mv", "addmv"):
            return True
    return False
