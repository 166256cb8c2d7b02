"""Detect computation outside the dispatcher: data that was exported and re-imported without a recorded producer.

Work in numpy, in another thread or process, under disabled modes or in a kernel called with an address is not
recorded. If data was exported in such a way (``.numpy()``, ``.data_ptr()``, a thread), tensors without a producer and
uninitialised memory that is used indicate that work. Without an export they do not: tensors that existed before the
run, such as constants in a closure, have no producer either.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from headcount.bench.contractions.zero_mac_ops import FREE, base
from headcount.bench.trace.events import FUNCTION, Event, TensorFact, Trace, tensors_in

_WAYS_OUT = frozenset({"numpy", "__array__", "tolist", "data_ptr", "__dlpack__"})
_EMPTY = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"})


@dataclass(frozen=True)
class UntracedTensor:
    """A tensor without a recorded producer at its first use, after data was exported by ``way``."""

    way: str
    event: Event
    fact: TensorFact


def find_untraced_tensors(trace: Trace) -> list[UntracedTensor]:
    """Return each tensor storage whose values were computed outside the trace, once."""
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
                out.append(UntracedTensor(ways[0], event, fact))
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
