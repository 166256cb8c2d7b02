"""The state of each storage of a trace, and its propagation through copies and linear operations."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from headcount.bench.contractions.strides import Axis, Layout, Mark, aligned, plain, together, written
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
class Known:
    """The state of a storage.

    ``decided``: depends on an input or a parameter; ``fill``: one constant value; ``zeros``: all zero; ``pure``: a sum
    of products only; ``pairs``: products by the origin of their operands.
    """

    layout: Layout | None = None
    decided: bool = False
    fill: bool = False
    zeros: bool = False
    pure: bool = False
    pairs: Mapping[tuple, int] = field(default_factory=dict)
    origin: int = -1
    chain: tuple[str, ...] = ()
    same: tuple | None = None


class Memory:
    """The states of all storages written so far. Subclasses define the effect of an operation."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._known: dict[int, Known] = {}
        self._first: dict[int, TensorFact] = {}
        for fact in tensors_in((trace.args, trace.kwargs)):
            self._first.setdefault(fact.storage, fact)

    # Queries

    def _of(self, fact: TensorFact) -> Known:
        known = self._known.get(fact.storage)
        if known is None:
            trace = self._trace
            given = fact.storage not in trace.buffers and fact.dtype.startswith(("float", "bfloat", "complex"))
            known = Known(
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

    # New values

    def _new(self, event: Event, facts: list[TensorFact], outs: list[TensorFact]) -> None:
        """Record new values of which only the origin is known."""
        name = base(event.name)
        zeros = name in _ZEROS
        fill = name in _FILLS or bool(facts) and not zeros and all(self._of(fact).fill for fact in facts)
        for out in outs:
            self._put(event, out, Known(fill=fill, zeros=zeros), facts)

    def _put(self, event: Event, out: TensorFact, known: Known, facts: Iterable[TensorFact]) -> None:
        if out.storage in self._trace.parameters or out.storage in self._trace.buffers:
            return
        if not event.writes and any(fact.storage == out.storage for fact in facts):
            return
        facts = list(facts)
        before = [self._of(fact) for fact in facts]
        chain = (base(event.name), *(before[0].chain[:2] if before else ()))
        origin = known.origin if known.origin >= 0 else out.storage
        decided = known.zeros or any(fact.decided for fact in before)
        self._first.setdefault(out.storage, out)
        if event.writes and not self._whole(out):
            # A part was written: the state of the rest is unchanged, but it is no fill any more.
            old = self._of(out)
            self._known[out.storage] = replace(
                old, decided=decided or old.decided, fill=False, zeros=False, pure=False, same=None
            )
            return
        self._known[out.storage] = replace(known, decided=decided, origin=origin, chain=chain)

    def _whole(self, fact: TensorFact) -> bool:
        first = self._first.get(fact.storage)
        return first is None or fact.numel >= first.numel

    def _constant(self, fact: TensorFact) -> bool:
        return fact.numel < 2 or fact.dtype == "bool" or self._of(fact).fill

    def _same(self, a: TensorFact, b: TensorFact) -> bool:
        return self._identity(a) == self._identity(b)

    def _identity(self, fact: TensorFact) -> tuple:
        own = (fact.storage, fact.source, fact.offset, fact.shape, fact.strides)
        return self._of(fact).same or own

    # Moves and linear operations

    def _combine(self, event, facts, out, pairs, pure) -> None:
        columns = [aligned(self._axes(fact), out.shape) for fact in facts]
        axes = [
            (any(x.varies and x.size > 1 for x in at), together(*(x.mark for x in at)))
            for at in zip(*columns, strict=True)
        ]
        layout = written(out, axes, together(*(self._term(fact) for fact in facts)))
        fill = all(self._of(fact).fill for fact in facts)
        self._put(event, out, Known(layout, fill=fill, pure=pure, pairs=pairs), facts)

    def _elementwise(self, event, facts, outs, kept: bool) -> None:
        """Follow an elementwise operation; ``kept``: linear in its first non-constant tensor (where: in both)."""
        out = outs[0]
        if not event.writes and out.storage in {fact.storage for fact in facts}:
            return
        if not kept or any(len(fact.shape) > len(out.shape) for fact in facts):
            return self._new(event, facts, outs)
        name = base(event.name)
        source = next((fact for fact in facts if not self._constant(fact)), facts[0])
        linear = facts[1:] if name == "where" and len(facts) == 3 else [source]
        known = self._of(source)
        columns = [aligned(self._axes(fact), out.shape) for fact in facts]
        marked = [aligned(self._axes(fact), out.shape) for fact in linear]
        axes = [
            # A padded tensor varies along every index.
            (name == "constant_pad_nd" or any(x.varies and x.size > 1 for x in at), together(*(x.mark for x in marks)))
            for at, marks in zip(zip(*columns, strict=True), zip(*marked, strict=True), strict=True)
        ]
        made = Known(
            written(out, axes, together(*(self._term(fact) for fact in linear))),
            fill=all(self._of(fact).fill for fact in facts),
            zeros=known.zeros,
            pure=known.pure,
            pairs=known.pairs,
            origin=known.origin if name in _MOVES_VALUES else -1,
            same=self._identity(source) if name in ("_to_copy", "clone") and source.shape == out.shape else None,
        )
        self._put(event, out, made, facts)

    def _move(self, event: Event, facts: list[TensorFact], outs: list[TensorFact]) -> None:
        """Follow a copy: along the same axes if their number is equal, else along any."""
        if not facts:
            return self._new(event, facts, outs)
        source = facts[1] if base(event.name) == "embedding" and len(facts) > 2 else facts[0]
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
                Known(
                    layout, fill=known.fill, zeros=known.zeros, pure=known.pure, pairs=known.pairs, origin=known.origin
                ),
                facts,
            )

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
        axes = [(any(v for v, _ in at), together(*(mark for _, mark in at))) for at in zip(*columns, strict=True)]
        if len(axes) == len(out.shape) and axes:
            slots = together(*terms) if len(terms) > 1 else None
            axes[dim] = (True, together(axes[dim][1], slots))
            pure = len(terms) == len(facts)
            known = Known(written(out, axes, together(*terms)), pure=pure)
            self._put(event, out, known, facts)
        else:
            self._new(event, facts, [out])

    def _write(self, event: Event, facts: list[TensorFact]) -> None:
        """Follow copy_ into a whole storage, or into a part, whose other indices then distinguish products."""
        target, source = facts
        if target.storage in self._trace.parameters or target.storage in self._trace.buffers:
            return
        if self._whole(target):
            layout_of = written(
                target, [(a.varies, a.mark) for a in aligned(self._axes(source), target.shape)], self._term(source)
            )
            known = self._of(source)
            self._put(
                event,
                target,
                Known(layout_of, fill=known.fill, zeros=known.zeros, pure=known.pure, pairs=known.pairs),
                (source,),
            )
            return
        old, term = self._of(target), self._term(source)
        first = self._first[target.storage]
        axes = list(old.layout.axes if old.layout else plain(first))
        into = aligned(self._axes(source), target.shape)
        reached: set[int] = set()
        for size, stride, axis in zip(target.shape, target.strides, into, strict=True):
            for number, mine in enumerate(axes):
                if mine.meets(size, stride):
                    reached.add(number)
                    axes[number] = Axis(mine.size, mine.stride, True, together(mine.mark, axis.mark))
        for number, mine in enumerate(axes):
            if number not in reached and term:
                axes[number] = Axis(mine.size, mine.stride, True, together(mine.mark, term))
        layout = Layout(tuple(axes), together(old.layout.term if old.layout else None, term))
        decided = old.decided or self._of(source).decided
        self._known[target.storage] = Known(layout, decided, origin=old.origin, chain=old.chain)
