"""Detect computation outside the dispatcher: data that was exported and re-imported without a recorded producer.

Work in numpy, in another thread or process, under disabled modes or in a kernel called with an address is not
recorded. If data was exported in such a way (``.numpy()``, ``.data_ptr()``, a thread), these indicate that work, as
operands and as the module's result: tensors without a producer, uninitialised memory, and constant memory (zeros, a
buffer) that was exported itself. Without an export they do not: tensors that existed before the run, such as constants
in a closure, have no producer either. Two things indicate work without an export: memory that is gone after the run,
which another thread made meanwhile, and what an ``autograd.Function`` returns in uninitialised memory, which a compiled
kernel wrote.
"""

from collections.abc import Iterator

from headcount.bench.contractions.zero_mac_ops import FREE, base
from headcount.bench.trace.events import AUTOGRAD, FUNCTION, Event, TensorFact, Trace, tensors_in

_MEMORY = frozenset({"numpy", "__array__", "data_ptr", "untyped_storage"})
"""Exports after which other code can write to the tensor's memory."""
WAYS_OUT = _MEMORY | {"tolist"}
"""Names of calls that export data."""
_EMPTY = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"})
_OF_VALUES = frozenset({"tensor", "as_tensor", "new_tensor"})
"""Functions that make a tensor of Python's values."""
_FILLED = frozenset("full full_like new_full new_ones new_zeros ones ones_like zeros zeros_like fill zero".split())


def find_untraced_tensors(trace: Trace) -> list[tuple[str, str, TensorFact]]:
    """Return each tensor storage whose values were computed outside the trace, once.

    With how its data left and which operation used it first, and that operation's module path. What is used before any
    data left was there before.
    """
    ways = sorted(_ways_out(trace))
    end = len(trace.events)
    first_export = ways[0][0] if ways else end
    functions = {
        fact.storage: event.name
        for event in trace.events
        if event.what == AUTOGRAD and not event.backward
        for fact in tensors_in(event.out)
    }
    exported: dict[int, int] = {}
    for event in _exports(trace):
        for fact in event.tensors():
            exported.setdefault(fact.storage, _last_inside(trace, event))
    seen = {fact.storage for fact in tensors_in((trace.args, trace.kwargs))}
    seen |= trace.parameters.keys()
    known = trace.buffers.keys() | trace.given
    outside = _made_outside(trace)
    out = []

    def check(fact: TensorFact, event: Event | None) -> None:
        if fact.storage in seen or not _holds_values(fact):
            return
        made = trace.events[fact.source] if fact.source is not None else None
        now = event.index if event else end
        left = first_export < now
        late = exported.get(fact.storage, end) < now
        if made is None and not left and fact.storage not in outside:
            known.add(fact.storage)
        if made is None:
            unmade = late or fact.storage not in known
        elif fact.storage in trace.buffers or fact.storage in trace.given:
            unmade = False
        else:
            filled = fact.storage in exported and base(made.name) in _FILLED and late
            unmade = (filled or base(made.name) in _EMPTY) and not (event and _leaves_unread(event, fact))
        function = functions.get(fact.storage)
        if unmade and (left or function and made or fact.storage in outside):
            seen.add(fact.storage)
            user, path = (event.name, event.path) if event else ("the module's caller", "")
            way = " in ".join(filter(None, (left and ways[0][1], function and f"autograd.Function {function}")))
            data = f"data that left by {way} and came back" if way else "data that another thread or process computed"
            out.append((f"{data}, first used by {user},", path, fact))

    for event in trace.operations():
        if event.name.startswith("c10d.") and not event.name.endswith(("reduce_", "send")):
            # collectives write to their first argument, which their schemas do not mark
            seen |= {fact.storage for fact in tensors_in(event.args[:1])}
        if not event.backward:
            for fact in event.tensors():
                check(fact, event)
    for fact in tensors_in(trace.out):
        check(fact, None)
    return out


def _made_outside(trace: Trace) -> set[int]:
    """Return the storages that no operation made and that are gone after the run."""
    gone = {storage for storage, memory in trace.unmade.items() if memory() is None}
    # a tensor of Python's or numpy's values
    lifted = (event for event in trace.operations() if gone and base(event.name) == "lift_fresh")
    gone -= {fact.storage for event in lifted for fact in event.tensors()}
    # on meta one is made without an operation
    calls = (event for event in trace.events if gone and event.what == FUNCTION and event.name in _OF_VALUES)
    return gone - {one.storage for event in calls for one in tensors_in(event.out) if one.storage not in _inputs(event)}


def _inputs(event: Event) -> set[int]:
    """Return the storages of an event's arguments."""
    return {fact.storage for fact in event.tensors()}


def _exports(trace: Trace) -> Iterator[Event]:
    return (event for event in trace.events if event.what == FUNCTION and event.name in _MEMORY)


def _ways_out(trace: Trace) -> Iterator[tuple[int, str]]:
    """Iterate over the calls by which data left, each with the number of events before it."""
    for event in trace.events:
        left = event.what == FUNCTION and event.name in WAYS_OUT
        if left and any(_holds_values(fact) for fact in event.tensors()):
            yield _last_inside(trace, event), f"Tensor.{event.name}"
    for name, number in trace.left:
        yield number - 1, name


def _last_inside(trace: Trace, event: Event) -> int:
    """Return the index of the last event of a call: what the call runs itself is no use of what it exports."""
    return max(inner.index for inner in trace.inside(event.index))


def _holds_values(fact: TensorFact) -> bool:
    return fact.numel > 1 and fact.dtype.startswith(("float", "bfloat", "complex"))


def _leaves_unread(event: Event, fact: TensorFact) -> bool:
    """Return whether the operation moves, writes or ignores the values of ``fact``, and computes nothing of them."""
    name = base(event.name)
    return name in FREE or fact.storage in event.writes or name.endswith("_like")
