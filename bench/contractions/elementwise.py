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
from dataclasses import dataclass, field, replace
from math import prod

from headcount.bench.contractions.dataflow import Dataflow, TensorState
from headcount.bench.contractions.strides import Axis, Mark, align_axes, merge_marks, new_layout, varies_along
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
class ElementwiseProduct:
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


def find_elementwise_products(trace: Trace) -> list[ElementwiseProduct]:
    """Return the elementwise contractions, squares and scaled additions of ``trace``, in order of the products."""
    return _Follower(trace).found()


class _Follower(Dataflow):
    def __init__(self, trace: Trace) -> None:
        super().__init__(trace)
        self._products: dict[int, _Product] = {}
        self._scaled: dict[int, str] = {}
        for event in trace.operations():
            if event.out is not None:
                self._step(event)

    def found(self) -> list[ElementwiseProduct]:
        """Return each product once."""
        out = []
        for index, product in self._products.items():
            how = product.how or self._scaled.get(index)
            if not how:
                continue
            kind = SQUARE if product.square else CONTRACTION if product.how else SCALED
            summed = prod(product.shape[axis] for axis in product.axes)
            rest = prod(product.shape) // summed if summed else 0
            dims = {"m": rest, "i": summed} if product.axes else {"m": rest}
            if product.event.times != 1:
                dims["n"] = product.event.times
            name = product.event.name
            call = name if how == name else f"{name}, {how}"
            shapes = tuple(fact.shape for fact in tensors_in(product.event.args))
            out.append(ElementwiseProduct(index, product.event.path, call, kind, dims, shapes))
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
            self._elementwise(event, facts, outs, is_linear=True)
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
            return self._elementwise(event, facts, outs, is_linear=name == "mul")
        a, b = tensors
        product = _Product(event, out.shape, square=self._same(a, b))
        self._products[event.index] = product
        first, second = (align_axes(self._axes(fact), out.shape) for fact in (a, b))
        product.how = self._at_once(event, name, product.shape, first, second)
        if gradient:
            product.how = "gradient of a product of vectors"
        axes = []
        for number, (size, x, y) in enumerate(zip(out.shape, first, second, strict=True)):
            both = varies_along(size, x) and varies_along(size, y)
            mark = Mark(event.index, number) if both else merge_marks(x.mark, y.mark)
            axes.append((x.varies and x.size > 1 or y.varies and y.size > 1, mark))
        depends_on_input = all(self._state(fact).depends_on_input for fact in (a, b))
        term = Mark(event.index) if depends_on_input and not product.square else None
        product_keys = dict.fromkeys(self._product_keys(a, b), event.index) if depends_on_input else {}
        if name in ("addcmul", "lerp") and len(facts) == 3:
            self._fused_addition(event, facts[0], out, axes, term, product_keys)
            return
        state = TensorState(new_layout(out, axes, term), is_product_sum=term is not None, product_keys=product_keys)
        self._put(event, out, state, (a, b))

    def _at_once(self, event: Event, name: str, shape: tuple[int, ...], first: list[Axis], second: list[Axis]) -> str:
        """Return why it is a contraction regardless of later operations; "" if it is not."""
        both = [(varies_along(n, x), varies_along(n, y)) for n, x, y in zip(shape, first, second, strict=True)]
        if (True, False) in both and (False, True) in both:
            return _OUTER
        return name if name == "lerp" else "einsum" if summed_by_einsum(self._trace, event) else ""

    def _product_keys(self, a: TensorFact, b: TensorFact) -> list[tuple]:
        """Return the keys that products of the same tensors at different positions share."""
        one, other = self._state(a), self._state(b)
        out = []
        for fact, state, with_ in ((a, one, other), (b, other, one)):
            first = self._first.get(fact.storage)
            moved = state.origin != fact.storage or fact.offset or first is not None and fact.numel < first.numel
            weight = self._trace.parameters.get(fact.storage)
            if moved or weight and prod(weight[1]) > fact.numel:
                out.append((state.origin, with_.chain))
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
        state = self._state(fact)
        layout = new_layout(out, left, term)
        self._put(event, out, replace(state, layout=layout, is_zero=False, origin=-1, same=None), facts)

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
        one, other = (self._state(fact) for fact in facts)
        keys = one.product_keys or other.product_keys
        if one.product_keys and other.product_keys:
            keys = {**one.product_keys, **other.product_keys}
        sums = [state.is_product_sum for state in (one, other)]
        is_product_sum = all(sums) or any(sums) and (one.is_zero or other.is_zero)
        self._combine(event, facts, out, keys, is_product_sum)

    def _meet(self, event: Event, a: TensorFact, b: TensorFact, name: str) -> None:
        one, other = self._state(a), self._state(b)
        terms = [mark for mark in (self._term(a), self._term(b)) if mark]
        if one.is_product_sum and other.is_product_sum and a != b:
            self._count(terms, f"summed by {name}")
            return
        for key in other.product_keys if len(other.product_keys) < len(one.product_keys) else one.product_keys:
            if key in one.product_keys and key in other.product_keys and a != b:
                for index in {one.product_keys[key], other.product_keys[key]}:
                    self._products[index].how = self._products[index].how or f"summed by {name}"
        for mark, addend in ((self._term(a), other), (self._term(b), one)):
            if mark and not (addend.is_constant or addend.is_zero):
                for index, _ in mark.collect("seen"):
                    self._scaled.setdefault(index, f"added by {name}")

    def _fused_addition(self, event, start, out, axes, term, product_keys) -> None:
        """Follow addcmul and lerp, which add a product in the same call."""
        state = self._state(start)
        old = self._term(start)
        if term and old and state.is_product_sum:
            self._count((old, term), f"summed by {event.name}")
        for key in product_keys:
            if key in state.product_keys:
                for index in (state.product_keys[key], event.index):
                    self._products[index].how = self._products[index].how or f"summed by {event.name}"
        if not state.is_zero:
            self._scaled.setdefault(event.index, event.name)
        start_axes = align_axes(self._axes(start), out.shape)
        merged = [(v or x.varies, merge_marks(mark, x.mark)) for (v, mark), x in zip(axes, start_axes, strict=True)]
        layout = new_layout(out, merged, merge_marks(term, old))
        is_product_sum = term is not None and (state.is_product_sum or state.is_zero)
        facts = list(tensors_in(event.args))
        keys = {**state.product_keys, **product_keys}
        self._put(event, out, TensorState(layout, is_product_sum=is_product_sum, product_keys=keys), facts)


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
            inputs, _, result = outer.args[0].partition("->")
            first, *others = inputs.split(",")
            # Without an arrow, common indices are summed.
            return len(others) == 1 and any(x.isalpha() and x not in result for x in first if x in others[0])
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
