"""How the call around an elementwise product was written."""

from headcount.bench.contractions.no_contraction import base
from headcount.bench.trace.events import FUNCTION, Event, Trace


def summed_by_einsum(trace: Trace, event: Event) -> bool:
    """Whether torch.einsum of two operands runs ``event`` for an index that it sums, of size one."""
    for outer in trace.around(event):
        if outer.what == FUNCTION and outer.name == "einsum" and outer.args and isinstance(outer.args[0], str):
            inputs, _, kept = outer.args[0].partition("->")
            first, *others = inputs.split(",")
            # Without an arrow, what two operands have is summed.
            return len(others) == 1 and any(x.isalpha() and x not in kept for x in first if x in others[0])
    return False


def of_vectors(trace: Trace, event: Event) -> bool:
    """Whether ``event`` differentiates a product with a vector."""
    if event.forward is None:
        return False
    for later in range(event.forward, len(trace.events)):
        inner = trace.events[later]
        if later > event.forward and (inner.parent is None or inner.parent < event.forward):
            return False
        if base(inner.name) in ("dot", "vdot", "mv", "addmv"):
            return True
    return False
