"""Find the calls in a torch.jit graph: those on which an output, a side effect or a written weight depends."""

from headcount.bench.trace.events import AUTOGRAD, FUNCTION, OPERATION, Event, TensorFact, Trace, tensors_in


def live_functions(trace: Trace) -> set[int]:
    """Return the calls of a forward pass that stay in a traced graph.

    They are calls into torch's C++; where a transform of torch.func is around one, and in a gradient inside the
    forward pass, the operations that run. A traced graph holds no operations inside an autograd.Function, only the
    Function, which always stays (torch/csrc/jit/ir/ir.cpp, hasSideEffects).
    """
    live = _live_operations(trace)
    out = set()
    for index in live:
        calls = [outer for outer in trace.around(trace.events[index]) if outer.what == FUNCTION]
        # The tracer records the call that Python made, not what that call does inside.
        if trace.events[index].backward or any(call.transformed for call in calls):
            out.add(index)
        elif calls:
            out.add(calls[-1].index)
    return out


def _live_operations(trace: Trace) -> set[int]:
    forward = [e for e in trace.events if e.what == OPERATION and not e.composite]
    hidden = {event.index for event in forward if trace.inside(event, AUTOGRAD)}
    lasting = {fact.storage for fact in tensors_in((trace.args, trace.kwargs))}
    lasting |= trace.parameters.keys() | trace.buffers.keys()
    waiting = [fact.source for fact in tensors_in(trace.out)]
    waiting += [event.index for event in forward if lasting.intersection(event.writes)]
    for event in trace.events:
        if event.what == AUTOGRAD and not event.backward:
            waiting += _sources(event)
    live: set[int] = set()
    while waiting:
        index = waiting.pop()
        if index is not None and index not in live and index not in hidden:
            live.add(index)
            waiting += _sources(trace.events[index])
    return live


def _sources(event: Event) -> list[int | None]:
    return [fact.source for fact in event.tensors() if isinstance(fact, TensorFact)]
