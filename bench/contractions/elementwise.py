"""Find products that are written elementwise and summed afterwards, by following data through a trace.

Convention: an elementwise product of two tensors, each of more than one element and neither a constant fill, is a
contraction where

    summed     a reduction, a running sum or an accumulation runs over an index of both operands,
    added      both terms of an addition are sums of products, or two products of the same pair of tensors, or parts of
               one product, at different positions are added (taps of a convolution, experts in a loop, experts added
               to a residual); ``lerp`` is such an addition,
    outer      each operand has an index that the other lacks: a matrix product over an index of size one,
    einsum     torch.einsum runs a product over an index of size one,
    gradient   it is the gradient of ``dot`` or ``mv`` (elsewhere a number times a vector is a scaling).

Its size is the number of multiplications. Separate kinds are squares (a tensor with itself, norms, variances)
and products that are added to anything else (gates, residual scales). Products with values that do not depend on an
input or a parameter, such as rotary angles, have neither kind.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from headcount.bench.contractions.dataflow import MOVES, REAL, Axis, Dataflow, Mark, Value, any_varies, broadcast
from headcount.bench.contractions.zero_mac_ops import base
from headcount.bench.trace.events import Event, TensorFact, Trace, shapes_text, tensors_in

_OUTER = "outer product"
CONTRACTION, SQUARE, SCALED = "elementwise_contraction", "square_sum", "scaled_addition"

_ADDITIONS = frozenset({"add", "sub", "rsub", "_add_relu"})
_PRODUCTS = frozenset("mul addcmul lerp pow square prod cumprod".split())
_POOLS = {"_adaptive_avg_pool2d": 2, "_adaptive_avg_pool3d": 3, "avg_pool2d": 2, "avg_pool3d": 3}
_SUMS = frozenset("sum mean nansum cumsum trace _sparse_sum".split()) | _POOLS.keys()
_ACCUMULATES = frozenset("index_add scatter_add bincount histogram _unsafe_masked_index_put_accumulate".split())
_SUMS_THE_FIRST = frozenset("col2im embedding_dense_backward unfold_backward".split())
"""Operations that sum their first argument; those above sum their last one."""
_IF_A_SUM = frozenset("scatter scatter_reduce index_reduce segment_reduce".split())
_IF_ACCUMULATE = frozenset("put index_put _index_put_impl _unsafe_index_put".split())
_OWN_SQUARES = frozenset("linalg_vector_norm norm var std var_mean std_mean mse_loss".split())


@dataclass(slots=True)
class ElementwiseProduct:
    """One elementwise product, the operation ``event``, whose results have ``shape``.

    ``summed_by`` is what makes it a contraction, "" if nothing does; ``added_by`` is what adds it to another term.
    ``axes`` of ``shape`` are summed. ``square``: a tensor is multiplied by itself. ``times`` multiplications give one
    result.
    """

    event: Event
    shape: tuple[int, ...]
    square: bool = False
    summed_by: str = ""
    added_by: str = ""
    times: int = 1
    axes: set[int] = field(default_factory=set)

    @property
    def kind(self) -> str:
        """One of the three kinds above."""
        return SQUARE if self.square else CONTRACTION if self.summed_by else SCALED

    @property
    def dims(self) -> Mapping[str, int]:
        """Sizes: m retained by i summed elements, n times."""
        summed, times = prod(self.shape[axis] for axis in self.axes), self.times * self.event.times
        dims = {"m": prod(self.shape) // summed if summed else 0}
        return dims | ({"i": summed} if self.axes else {}) | ({"n": times} if times != 1 else {})

    @property
    def size(self) -> int:
        """Number of multiplications."""
        return prod(self.dims.values())

    def text(self) -> str:
        """Return one phrase with the call, its shapes and its module."""
        call = ", ".join(dict.fromkeys((self.event.name, self.summed_by or self.added_by)))
        shapes = shapes_text(fact.shape for fact in tensors_in(self.event.args))
        return f"{call} on {shapes} ({self.size:,} in {self.event.path or 'the model'})"


def find_elementwise_products(trace: Trace, counted: Iterable[int] = ()) -> list[ElementwiseProduct]:
    """Return the elementwise contractions, squares and scaled additions of ``trace``, in order of the products.

    ``counted`` are indices of events that are contractions already.
    """
    products = _Follower(trace, frozenset(counted)).products.values()
    return [product for product in products if product.summed_by or product.added_by]


LSTM = 2
"""The number of this mode in torch."""


def _fused_states(event: Event) -> int:
    """Return the elements of c' = f c + i g of a fused LSTM step: both terms are products, as of the same cell unfused.

    Other recurrent cells add no two products.
    """
    if event.name in ("mkldnn_rnn_layer", "_thnn_fused_lstm_cell"):
        return event.out[0].numel
    if event.name != "_cudnn_rnn" or event.args[6] != LSTM:
        return 0
    # of all layers; the result is the last layer's, of the projected width if there is one
    hidden, projected, layers = event.args[7:10]
    return event.out[0].numel // (projected or hidden) * hidden * layers


class _Follower(Dataflow):
    def __init__(self, trace: Trace, counted: frozenset[int]) -> None:
        super().__init__(trace)
        self._counted = counted
        self.products: dict[int, ElementwiseProduct] = {}
        for event in trace.operations():
            if event.out is not None:
                self._step(event)

    def _step(self, event: Event) -> None:
        name = base(event.name)
        facts, outs = list(tensors_in(event.args)), list(tensors_in(event.out))
        if facts and outs and 1 in outs[0].shape and outs[0].storage == facts[0].storage:
            self.follow_ones(event, facts[0], outs[0])
        if name in _OWN_SQUARES:
            self._own_square(event, name, facts)
        elif states := _fused_states(event):
            self.products[event.index] = ElementwiseProduct(event, (2 * states,), summed_by="its gates")
        summed = _summed_argument(event, name, facts)
        if summed is not None:
            marks = (*(axis.mark for axis in self.axes(summed)), self.stored(summed).term)
            self._count(marks, f"summed by {name}")
        written = [out for out in outs if self.is_written(event, out, facts)]
        value = None
        if not facts or not (written or name in _SUMS):
            pass
        elif name in _SUMS:
            value = self._reduce(event, name, facts[0], outs)
        elif name in _PRODUCTS and event.index not in self._counted:
            value = self._multiply(event, name, facts, written[0])
        elif name in _ADDITIONS and len(facts) == 2:
            value = self._sum(event, facts, written[0])
        elif name in MOVES and summed is None:
            value = self.moved(event, facts, written[0])
        for out in written:
            fits = value is not None and out.dtype == written[0].dtype and len(value.axes) == len(out.shape)
            self.put(event, out, value if fits else self.new(event, facts), facts)

    # Products

    def _multiply(self, event: Event, name: str, facts: list[TensorFact], out: TensorFact) -> Value | None:
        if name in ("prod", "cumprod"):
            return self._running_product(event, name, facts[0], out)
        if name == "pow" and event.args[1] != 2:
            return None
        if name == "lerp" and len(facts) == 2:
            # by a number: a sum of two scaled tensors
            return self._sum(event, facts, out)
        factors = {"addcmul": facts[-2:], "lerp": [facts[0], facts[-1]]}.get(name, facts)
        if name in ("pow", "square"):
            factors = [facts[0], facts[0]]
        gradient = event.backward and len(factors) == 2 and of_vectors(self._trace, event)
        tensors = factors if gradient else [fact for fact in factors if not self.scales(fact)]
        if len(factors) < 2 or len(tensors) < 2 or not out.dtype.startswith(REAL):
            if name not in ("mul", "addcmul"):
                return None
            value = self.scaled(event, factors, out)
            return value if name == "mul" else self._add_to(event, facts[0], value, out)
        a, b = (self.stored(fact) for fact in tensors)
        shape = out.shape if out.stored is None else (out.stored,)
        product = ElementwiseProduct(event, shape, self.identity(tensors[0]) == self.identity(tensors[1]))
        self.products[event.index] = product
        first, second = (broadcast(self.axes(fact), out.shape) for fact in tensors)
        varying = [(x.varies, y.varies) for x, y in zip(first, second, strict=True)]
        if gradient or name == "lerp":
            product.summed_by = "gradient of a product of vectors" if gradient else name
        elif (True, False) in varying and (False, True) in varying:
            product.summed_by = _OUTER
        axes = []
        for number, both in enumerate(zip(first, second, strict=True)):
            shared = all(axis.varies is not False for axis in both)
            mark = Mark(event.index, number) if shared else Mark.union(*(axis.mark for axis in both))
            axes.append(Axis(out.shape[number], 0, any_varies(both), mark))
        depends = bool(a.depends and b.depends)
        term = Mark(event.index) if depends and not product.square else None
        keys = dict.fromkeys(self._keys(tensors, a, b), (event.index, None)) if depends else {}
        value = Value(tuple(axes), term, is_product_sum=term is not None, products=keys)
        if name in ("addcmul", "lerp") and len(facts) == 3:
            return self._add_to(event, facts[0], value, out)
        return value

    def scaled(self, event: Event, factors: list[TensorFact], out: TensorFact) -> Value:
        """Return the values of the first factor that is no scale, times the others."""
        source = next((n for n, fact in enumerate(factors) if not self.scales(fact)), 0)
        columns = [broadcast(self.axes(fact), out.shape) for fact in factors]
        axes = [
            Axis(size, 0, any_varies(at), at[source].mark)
            for size, at in zip(out.shape, zip(*columns, strict=True), strict=True)
        ]
        value = self.merged(event, [self.stored(factors[source])], [axes], out)
        return replace(value, is_constant=all(self.stored(fact).is_constant for fact in factors), origin=-1)

    def _running_product(self, event: Event, name: str, fact: TensorFact, out: TensorFact) -> Value | None:
        """Follow the product of all values along an index: one multiplication less than there are values."""
        dims = summed_dims(event, name, len(fact.shape))
        times = prod(fact.shape[dim] for dim in dims) - 1
        if times < 1 or self.scales(fact) or not out.dtype.startswith(REAL):
            return None
        shape = tuple(1 if n in dims else size for n, size in enumerate(fact.shape))
        self.products[event.index] = ElementwiseProduct(event, shape, times=times)
        axes = self.axes(fact)
        marks = [Mark(event.index, n) if axis.varies and n not in dims else None for n, axis in enumerate(axes)]
        axes = _left(axes, marks, dims, out, name == "cumprod")
        term = Mark(event.index) if self.stored(fact).depends else None
        return Value(axes, term, is_product_sum=term is not None)

    def _keys(self, facts: list[TensorFact], a: Value, b: Value) -> list[tuple]:
        """Return the keys that products of the same tensors at different positions share."""
        pairs = zip(facts, (a, b), (b, a), strict=True)
        return [(value.origin, other.chain) for fact, value, other in pairs if self.is_moved(fact)]

    # Sums

    def _count(self, marks: Iterable[Mark | None], how: str) -> None:
        for mark in marks:
            for index, axis in mark.collect() if mark else ():
                product = self.products[index]
                product.summed_by = how if product.summed_by in ("", _OUTER) else product.summed_by
                if axis >= 0:
                    product.axes.add(axis)

    def _reduce(self, event: Event, name: str, fact: TensorFact, outs: list[TensorFact]) -> Value | None:
        axes = self.axes(fact)
        dims = summed_dims(event, name, len(fact.shape))
        self._count((axis.mark for n, axis in enumerate(axes) if n in dims), f"summed by {name}")
        if name in _POOLS or not outs:
            return None
        axes = _left(axes, [axis.mark for axis in axes], dims, outs[0], name == "cumsum")
        return replace(self.stored(fact), axes=axes, is_zero=False, origin=-1, identity=None)

    def _own_square(self, event: Event, name: str, facts: list[TensorFact]) -> None:
        if name in ("norm", "linalg_vector_norm") and event.argument(1) not in (2, None):
            return
        fact = max(facts, key=lambda fact: fact.numel, default=None)
        if fact is not None and fact.numel > 1:
            self.products[event.index] = ElementwiseProduct(event, fact.shape, True, event.name)

    def _sum(self, event: Event, facts: list[TensorFact], out: TensorFact) -> Value:
        columns = [broadcast(self.axes(fact), out.shape) for fact in facts]
        same = self.identity(facts[0]) == self.identity(facts[1])
        return self._add(event, [self.values(fact) for fact in facts], columns, out, same)

    def _add_to(self, event: Event, start: TensorFact, value: Value, out: TensorFact) -> Value:
        """Return the sum of a tensor and a value of the shape of ``out``."""
        return self._add(event, [self.values(start), value], [broadcast(self.axes(start), out.shape), value.axes], out)

    def _add(self, event: Event, terms: list[Value], columns: list[Sequence[Axis]], out, same: bool = False) -> Value:
        """Return the sum of two values, which makes contractions of products in both unless they are the same."""
        one, other = terms
        how = f"summed by {base(event.name)}"
        if one.is_product_sum and other.is_product_sum and not same:
            self._count((one.term, other.term), how)
        elif not same:
            few, many = sorted((one.products, other.products), key=len)
            # parts of one product are terms of one sum where their places differ
            common = [key for key, (_, place) in few.items() if key in many and (not place or many[key][1] != place)]
            for index in {at[key][0] for key in common for at in (few, many)}:
                product = self.products[index]
                product.summed_by = product.summed_by or how
            for term, addend in ((one.term, other), (other.term, one)):
                if term and not (addend.is_constant or addend.is_zero):
                    for index, _ in term.collect("seen"):
                        product = self.products[index]
                        product.added_by = product.added_by or f"added by {base(event.name)}"
        return self.merged(event, terms, columns, out)


def _left(axes, marks: list[Mark | None], dims: set[int], out: TensorFact, running: bool) -> tuple[Axis, ...]:
    """Return the axes after a reduction over ``dims``, which a running one keeps; their sizes are those of ``out``."""
    has_fewer = len(out.shape) < len(axes)
    return tuple(
        Axis(axis.size, 0, running if n in dims else axis.varies, mark)
        for n, (axis, mark) in enumerate(zip(axes, marks, strict=True))
        if not (has_fewer and n in dims)
    )


def _summed_argument(event: Event, name: str, facts: list[TensorFact]) -> TensorFact | None:
    """Return the tensor whose values an operation adds up at computed positions; None for other operations."""
    words = {value for value in (*event.args, *event.kwargs.values()) if isinstance(value, str)}
    weights = next(tensors_in((event.kwargs.get("weights"), event.kwargs.get("weight"))), None)
    is_sum = bool(words & {"sum", "mean", "add"})
    # equal positions of a sparse tensor are added
    adds = name == "_coalesce" and event.out.stored < facts[0].stored
    if adds or name in _SUMS_THE_FIRST or name == "segment_reduce" and is_sum:
        return facts[0]
    if name.startswith("_embedding_bag") and not event.backward and event.argument(4, default=0) < 2:
        return facts[0]
    accumulates = name in _IF_ACCUMULATE and event.argument(3, "accumulate", default=False)
    if name in _ACCUMULATES or name in _IF_A_SUM and is_sum or accumulates:
        return weights or next((fact for fact in facts[:0:-1] if fact.dtype.startswith(REAL)), None)
    return None


def summed_dims(event: Event, name: str, rank: int) -> set[int]:
    if name in _POOLS:
        return set(range(max(rank - _POOLS[name], 0), rank))
    dims = event.argument(1)
    if isinstance(dims, int):
        dims = (dims,)
    if not isinstance(dims, tuple) or not dims:
        # Without dimensions the sum is over all of them.
        return set(range(rank))
    return {dim % max(rank, 1) for dim in dims}


def of_vectors(trace: Trace, event: Event) -> bool:
    """Return whether ``event`` differentiates a product with a vector."""
    inside = () if event.forward is None else trace.inside(event.forward)
    return any(base(inner.name) in ("dot", "vdot", "mv", "addmv") for inner in inside)
