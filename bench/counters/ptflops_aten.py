"""ptflops, backend ``aten``: a dispatch mode with six operators, as they arrive there.

    mm, matmul             m k n: aten_ops.py:23-33
    addmm                  m k n, and m n for the bias: :36-54
    bmm                    b m k n: :57-68
    convolution            positions x window x channels, and the bias: :71-106
    every other operation  0: the table is :109-116

Composite operations are not taken apart: under inference_mode a linear layer arrives whole, and is 0. Places are in
the ptflops 0.7.5 sources.
"""

import re
from collections import Counter
from collections.abc import Mapping

from torch import Tensor, nn

from headcount.bench.counters import ptflops_run, rules
from headcount.bench.counters.base import TORCH, CallCount, Reported
from headcount.bench.trace.events import OPERATION, Event, Trace

NAME = "ptflops-aten"
DEVICE = "meta"
VERIFIED = {"ptflops": "0.7.5", "torch": TORCH}
ADDS = {"bias": 1}
"""In addmm and convolution (aten_ops.py:51, 93); a nn.Linear reaches addmm where its input is 2-D or contiguous."""

_ZERO_OP = re.compile(r"^Warning: (\S+) operation is treated as a zero-op$", re.MULTILINE)


def read(model: nn.Module, inputs: Mapping[str, Tensor]) -> Reported:
    """Count one forward pass; ``unsupported`` is read from what ptflops prints (aten_engine.py:96)."""
    macs, report = ptflops_run.run(model, inputs, backend="aten")
    return {"macs": macs, "unsupported": dict(Counter(_ZERO_OP.findall(report)))}


def _addmm(event: Event) -> dict[str, int]:
    """Count the first operand's elements times the other's last size."""
    return {**rules.addmm(event), "bias": event.out.numel}


def _convolution(event: Event) -> dict[str, int]:
    """Count the batch times the weight's elements times the positions."""
    return {**rules.convolution(event), "bias": 0 if event.args[2] is None else event.out.numel}


TABLE: rules.Rules = {
    "mm": (rules.matmul, "aten_ops.py:23-33"),
    "matmul": (rules.matmul, "aten_ops.py:23-33"),
    "addmm": (_addmm, "aten_ops.py:36-54"),
    "bmm": (rules.matmul, "aten_ops.py:57-68"),
    "convolution": (_convolution, "aten_ops.py:71-106"),
    "_convolution": (_convolution, "aten_ops.py:71-106"),
}


def call_counts(trace: Trace) -> list[CallCount]:
    """Return what is counted for each operation of a run, in order."""
    operations = (event for event in trace.events if event.what == OPERATION and not event.failed)
    return rules.apply((e for e in operations if not any(trace.around(e, OPERATION))), TABLE, "aten.")


def reason_missed(trace: Trace, event: Event) -> tuple[str, str]:
    """Return why an operation is not counted, and where in ptflops that is decided."""
    outermost = [event, *trace.around(event, OPERATION)][-1]
    return f"{rules.full_name(outermost.name)} is not in its table", "aten_ops.py:109-116"
