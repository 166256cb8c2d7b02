"""The rules of ptflops' backend ``aten``: six operations of a dispatch mode, as they arrive there.

    mm, matmul             m k n: aten_ops.py:23-33
    addmm                  m k n, and m n for the bias: :36-54
    bmm                    b m k n: :57-68
    convolution            positions x window x channels, and the bias: :71-106
    every other operation  0: the table is :109-116

Composite operations are not taken apart: under inference_mode a linear layer arrives whole, and is 0.
"""

from collections.abc import Callable
from math import prod

from headcount.bench.rules.bills import PRODUCT, Bill, total
from headcount.bench.trace.events import OPERATION, Event, Trace

NAME = "ptflops-aten"
VERIFIED = {"ptflops": "0.7.5", "torch": "2.13"}
NAMES = ()


def _matmul(event: Event) -> dict[str, int]:
    a, b = event.args[:2]
    return {PRODUCT: a.numel * b.shape[-1]}


def _addmm(event: Event) -> dict[str, int]:
    (m, k), n = event.args[1].shape, event.args[2].shape[1]
    return {PRODUCT: m * k * n, "bias": m * n}


def _convolution(event: Event) -> dict[str, int]:
    x, weight, bias = event.args[:3]
    transposed, out = event.args[6], event.out
    positions = prod((x if transposed else out).shape[2:])
    return {PRODUCT: x.shape[0] * weight.numel * positions, "bias": out.numel if bias is not None else 0}


TABLE: dict[str, tuple[Callable[[Event], dict[str, int]], str]] = {
    "mm": (_matmul, "aten_ops.py:23-33"),
    "matmul": (_matmul, "aten_ops.py:23-33"),
    "addmm": (_addmm, "aten_ops.py:36-54"),
    "bmm": (_matmul, "aten_ops.py:57-68"),
    "convolution": (_convolution, "aten_ops.py:71-106"),
    "_convolution": (_convolution, "aten_ops.py:71-106"),
}


def bills(trace: Trace) -> list[Bill]:
    """Every bill on a run, in the order of the operations."""
    out = []
    for event in trace.events:
        if event.what == OPERATION and event.name in TABLE and not trace.inside(event, OPERATION):
            rule, place = TABLE[event.name]
            out.append(Bill(event.index, rule(event), f"aten.{event.name}", place, differs="one operand is broadcast"))
    return out


def reading(trace: Trace, bills: list[Bill]) -> int:
    """The reading."""
    return total(bills)


def missed(trace: Trace, event: Event) -> tuple[str, str]:
    """Why an operation's products are in no bill, and where in ptflops that is decided."""
    arrived = [outer for outer in trace.around(event) if outer.what == OPERATION]
    return f"aten.{(arrived or [event])[-1].name} is not in its table", "aten_ops.py:109-116"
