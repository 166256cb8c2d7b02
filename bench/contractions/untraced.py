"""Work that the trace does not see: data that left it and came back without an operation that made it.

What runs in numpy, in another thread or process, under disabled modes or in a kernel that was handed an address is no
event. Where data left by such a way, values without a producer show that something was computed there, and so does
memory that is read though nobody wrote to it. Without both signs nothing is said: a tensor that was there before the
run, a constant in a closure, has no producer either.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from headcount.bench.contractions.zero_mac_ops import FREE, base
from headcount.bench.trace.events import FUNCTION, Event, TensorFact, Trace, tensors_in

_WAYS_OUT = frozenset({"numpy", "__array__", "tolist", "data_ptr", "__dlpack__"})
_EMPTY = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"})


@dataclass(frozen=True)
class Returned:
    """A tensor of unknown making, where it is first used, after data left by ``way``."""

    way: str
    event: Event
    fact: TensorFact


def find_untraced_tensors(trace: Trace) -> list[Returned]:
    """Each memory whose values were made where no operation is seen, once."""
    ways = list(_ways_out(trace))
    if not ways:
        return []
    seen = {fact.storage for fact in tensors_in((trace.args, trace.kwargs))}
    seen |= trace.parameters.keys() | trace.buffers.keys() | trace.given
    out = []
    for event in trace.operations():
        for fact in event.tensors():
            if fact.storage in seen or event.backward or not _holds_values(fact):
                continue
            unmade = fact.source is None or _unwritten(trace, event, fact)
            if unmade:
                seen.add(fact.storage)
                out.append(Returned(ways[0], event, fact))
    return out


def _ways_out(trace: Trace) -> Iterator[str]:
    for event in trace.events:
        left = event.what == FUNCTION and event.name in _WAYS_OUT
        if left and any(_holds_values(fact) for fact in event.tensors()):
            yield f"Tensor.{event.name}"
    for name, _ in trace.left:
        yield name


def _holds_values(fact: TensorFact) -> bool:
    return fact.numel > 1 and fact.dtype.startswith(("float", "bfloat", "complex"))


def _unwritten(trace: Trace, event: Event, fact: TensorFact) -> bool:
    made = base(trace.events[fact.source].name) in _EMPTY
    name = base(event.name)
    return made and name not in FREE and fact.storage not in event.writes and not name.endswith("_like")
