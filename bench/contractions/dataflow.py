"""The state of each storage of a trace, and its propagation through copies and linear operations."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from headcount.bench.contractions.strides import Axis, Layout, Mark, align_axes, default_axes, merge_marks, new_layout
from headcount.bench.contractions.zero_mac_ops import base
from headcount.bench.trace.events import Event, TensorFact, Trace, tensors_in

_FILLS = frozenset(
    "empty empty_like empty_strided full full_like new_empty new_empty_strided new_full new_ones ones ones_like"
    " scalar_tensor fill".split()
)
_ZEROS = frozenset("new_zeros zeros zeros_like zero".split())
"""Initial values of sums and states: adding them adds nothing; multiplying them counts as for later steps."""
_MOVES_VALUES = frozenset("roll flip constant_pad_nd _to_copy clone contiguous".split())


@dataclass(frozen=True, slots=True)
class TensorState:
    """The state of a storage.

    ``depends_on_input``: it depends on an input or a parameter; ``is_constant``: one constant value; ``is_zero``: all
    zero; ``is_product_sum``: a sum of products only; ``product_keys``: products by the origin of their operands.
    """

    layout: Layout | None = None
    depends_on_input: bool = False
    is_constant: bool = False
    is_zero: bool = False
    is_product_sum: bool = False
    product_keys: Mapping[tuple, int] = field(default_factory=dict)
    origin: int = -1
    chain: tuple[str, ...] = ()
    same: tuple | None = None


class Dataflow:
    """The states of all storages written so far. Subclasses define the effect of an operation."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._states: dict[int, TensorState] = {}
        self._first: dict[int, TensorFact] = {}
        for fact in tensors_in((trace.args, trace.kwargs)):
            self._first.setdefault(fact.storage, fact)

    # Queries

    def _state(self, fact: TensorFact) -> TensorState:
        state = self._states.get(fact.storage)
        if state is None:
            trace = self._trace
            given = fact.storage not in trace.buffers and fact.dtype.startswith(("float", "bfloat", "complex"))
            state = TensorState(
                depends_on_input=fact.storage in trace.parameters or given and fact.source is None, origin=fact.storage
            )
            self._states[fact.storage] = state
        return state

    def _axes(self, fact: TensorFact) -> tuple[Axis, ...]:
        state = self._state(fact)
        return state.layout.view_axes(fact) if state.layout else default_axes(fact)

    def _term(self, fact: TensorFact) -> Mark | None:
        state = self._state(fact)
        return state.layout.term if state.layout else None

    # New values

    def _new(self, event: Event, facts: list[TensorFact], outs: list[TensorFact]) -> None:
        """Record new values of which only the origin is known."""
        name = base(event.name)
        is_zero = name in _ZEROS
        of_constants = bool(facts) and not is_zero and all(self._state(fact).is_constant for fact in facts)
        for out in outs:
            self._put(event, out, TensorState(is_constant=name in _FILLS or of_constants, is_zero=is_zero), facts)

    def _put(self, event: Event, out: TensorFact, state: TensorState, facts: Iterable[TensorFact]) -> None:
        if out.storage in self._trace.parameters or out.storage in self._trace.buffers:
            return
        if not event.writes and any(fact.storage == out.storage for fact in facts):
            return
        facts = list(facts)
        before = [self._state(fact) for fact in facts]
        chain = (base(event.name), *(before[0].chain[:2] if before else ()))
        origin = state.origin if state.origin >= 0 else out.storage
        depends_on_input = state.is_zero or any(other.depends_on_input for other in before)
        self._first.setdefault(out.storage, out)
        if event.writes and not self._whole(out):
            # A part was written: the state of the rest is unchanged, but it is no fill any more.
            old = self._state(out)
            self._states[out.storage] = replace(
                old,
                depends_on_input=depends_on_input or old.depends_on_input,
                is_constant=False,
                is_zero=False,
                is_product_sum=False,
                same=None,
            )
            return
        self._states[out.storage] = replace(state, depends_on_input=depends_on_input, origin=origin, chain=chain)

    def _whole(self, fact: TensorFact) -> bool:
        first = self._first.get(fact.storage)
        return first is None or fact.numel >= first.numel

    def _constant(self, fact: TensorFact) -> bool:
        return fact.numel < 2 or fact.dtype == "bool" or self._state(fact).is_constant

    def _same(self, a: TensorFact, b: TensorFact) -> bool:
        return self._identity(a) == self._identity(b)

    def _identity(self, fact: TensorFact) -> tuple:
        own = (fact.storage, fact.source, fact.offset, fact.shape, fact.strides)
        return self._state(fact).same or own

    # Moves and linear operations

    def _combine(self, event, facts, out, product_keys, is_product_sum) -> None:
        columns = [align_axes(self._axes(fact), out.shape) for fact in facts]
        axes = [
            (any(x.varies and x.size > 1 for x in at), merge_marks(*(x.mark for x in at)))
            for at in zip(*columns, strict=True)
        ]
        layout = new_layout(out, axes, merge_marks(*(self._term(fact) for fact in facts)))
        state = TensorState(
            layout,
            is_constant=all(self._state(fact).is_constant for fact in facts),
            is_product_sum=is_product_sum,
            product_keys=product_keys,
        )
        self._put(event, out, state, facts)

    def _elementwise(self, event, facts, outs, is_linear: bool) -> None:
        """Follow an elementwise operation; ``is_linear``: linear in its first non-constant tensor (where: in both)."""
        out = outs[0]
        if not event.writes and out.storage in {fact.storage for fact in facts}:
            return
        if not is_linear or any(len(fact.shape) > len(out.shape) for fact in facts):
            return self._new(event, facts, outs)
        name = base(event.name)
        source = next((fact for fact in facts if not self._constant(fact)), facts[0])
        linear = facts[1:] if name == "where" and len(facts) == 3 else [source]
        state = self._state(source)
        columns = [align_axes(self._axes(fact), out.shape) for fact in facts]
        marked = [align_axes(self._axes(fact), out.shape) for fact in linear]
        # A padded tensor varies along every index.
        is_padded = name == "constant_pad_nd"
        axes = [
            (is_padded or any(x.varies and x.size > 1 for x in at), merge_marks(*(x.mark for x in marks)))
            for at, marks in zip(zip(*columns, strict=True), zip(*marked, strict=True), strict=True)
        ]
        made = replace(
            state,
            layout=new_layout(out, axes, merge_marks(*(self._term(fact) for fact in linear))),
            is_constant=all(self._state(fact).is_constant for fact in facts),
            origin=state.origin if name in _MOVES_VALUES else -1,
            same=self._identity(source) if name in ("_to_copy", "clone") and source.shape == out.shape else None,
        )
        self._put(event, out, made, facts)

    def _move(self, event: Event, facts: list[TensorFact], outs: list[TensorFact]) -> None:
        """Follow a copy: along the same axes if their number is equal, else along any."""
        if not facts:
            return self._new(event, facts, outs)
        source = facts[1] if base(event.name) == "embedding" and len(facts) > 2 else facts[0]
        state, axes, term = self._state(source), self._axes(source), self._term(source)
        everything = merge_marks(*(axis.mark for axis in axes))
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
            self._put(event, out, replace(state, layout=new_layout(out, moved, term), same=None), facts)

    def _gather(self, event: Event, facts: list[TensorFact], out: TensorFact) -> None:
        """Follow cat and stack: products along the new index are summed with it."""
        dim = event.argument(1, default=0) % max(len(out.shape), 1)
        terms = [mark for mark in (self._term(fact) for fact in facts) if mark]
        columns = []
        for fact in facts:
            axes = [(axis.varies, axis.mark) for axis in self._axes(fact)]
            if base(event.name) == "stack":
                axes.insert(dim, (True, None))
            if len(axes) == len(out.shape):
                columns.append(axes)
        axes = [(any(v for v, _ in at), merge_marks(*(mark for _, mark in at))) for at in zip(*columns, strict=True)]
        if len(axes) == len(out.shape) and axes:
            slots = merge_marks(*terms) if len(terms) > 1 else None
            axes[dim] = (True, merge_marks(axes[dim][1], slots))
            is_product_sum = len(terms) == len(facts)
            state = TensorState(new_layout(out, axes, merge_marks(*terms)), is_product_sum=is_product_sum)
            self._put(event, out, state, facts)
        else:
            self._new(event, facts, [out])

    def _write(self, event: Event, facts: list[TensorFact]) -> None:
        """Follow copy_ into a whole storage, or into a part, whose other indices then distinguish products."""
        target, source = facts
        if target.storage in self._trace.parameters or target.storage in self._trace.buffers:
            return
        if self._whole(target):
            axes = [(axis.varies, axis.mark) for axis in align_axes(self._axes(source), target.shape)]
            layout = new_layout(target, axes, self._term(source))
            self._put(event, target, replace(self._state(source), layout=layout, origin=-1, same=None), (source,))
            return
        old, term = self._state(target), self._term(source)
        first = self._first[target.storage]
        axes = list(old.layout.axes if old.layout else default_axes(first))
        into = align_axes(self._axes(source), target.shape)
        reached: set[int] = set()
        for size, stride, axis in zip(target.shape, target.strides, into, strict=True):
            for number, mine in enumerate(axes):
                if mine.overlaps(size, stride):
                    reached.add(number)
                    axes[number] = Axis(mine.size, mine.stride, True, merge_marks(mine.mark, axis.mark))
        for number, mine in enumerate(axes):
            if number not in reached and term:
                axes[number] = Axis(mine.size, mine.stride, True, merge_marks(mine.mark, term))
        layout = Layout(tuple(axes), merge_marks(old.layout.term if old.layout else None, term))
        depends_on_input = old.depends_on_input or self._state(source).depends_on_input
        self._states[target.storage] = TensorState(layout, depends_on_input, origin=old.origin, chain=old.chain)
