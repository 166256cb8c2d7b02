"""Elementwise products inside fused recurrent cells, equal to those of the same cell run as operations."""

from collections.abc import Callable, Iterator, Mapping

from headcount.bench.contractions.elementwise import CONTRACTION, ElementwiseProduct
from headcount.bench.trace.events import Event, Trace, tensors_in

LSTM = 2
"""The number of this mode in torch."""


def fused_cells(trace: Trace) -> Iterator[ElementwiseProduct]:
    """Iterate over c' = f c + i g of each fused LSTM step: both terms are products (bench.contractions.elementwise).

    Other recurrent cells add no two products.
    """
    for event in trace.operations():
        rule = _CELLS.get(event.name)
        states = rule(event) if rule else 0
        if states:
            shapes = tuple(fact.shape for fact in event.tensors())
            dims = {"m": 2 * states}
            yield ElementwiseProduct(event.index, event.path, f"{event.name}, its gates", CONTRACTION, dims, shapes)


def _outputs(event: Event) -> int:
    return next(tensors_in(event.out)).numel


def _cudnn(event: Event) -> int:
    """Return the states of all layers; the result is the last layer's, of the projected width if there is one."""
    mode, hidden, projected, layers = event.args[6:10]
    return _outputs(event) // (projected or hidden) * hidden * layers if mode == LSTM else 0


_CELLS: Mapping[str, Callable[[Event], int]] = {
    "mkldnn_rnn_layer": _outputs,
    "_thnn_fused_lstm_cell": _outputs,
    "_cudnn_rnn": _cudnn,
}
