"""Products that a fused recurrent cell multiplies and adds: what the same cell shows where it runs as operations."""

from collections.abc import Callable, Iterator, Mapping

from headcount.bench.contractions.elementwise import CONTRACTION, Hidden
from headcount.bench.trace.events import Event, Trace, tensors_in

LSTM = 2
"""torch's number of this mode."""


def fused_cells(trace: Trace) -> Iterator[Hidden]:
    """c' = f c + i g of each fused LSTM step: both sides of the addition are products (bench.contractions.elementwise).

    Other recurrent cells add no two products.
    """
    for event in trace.operations():
        rule = _CELLS.get(event.name)
        states = rule(event) if rule else 0
        if states:
            shapes = tuple(fact.shape for fact in event.tensors())
            dims = {"m": 2 * states}
            yield Hidden(event.index, event.path, f"{event.name}, its gates", CONTRACTION, dims, shapes)


def _outputs(event: Event) -> int:
    return next(tensors_in(event.out)).numel


def _cudnn(event: Event) -> int:
    """Every layer's states: the result has the last one's, of the projected width where there is one."""
    mode, hidden, projected, layers = event.args[6:10]
    return _outputs(event) // (projected or hidden) * hidden * layers if mode == LSTM else 0


_CELLS: Mapping[str, Callable[[Event], int]] = {
    "mkldnn_rnn_layer": _outputs,
    "_thnn_fused_lstm_cell": _outputs,
    "_cudnn_rnn": _cudnn,
}
