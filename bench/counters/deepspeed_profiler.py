"""DeepSpeed's flops profiler: Python functions patched by name, whose calls it counts for the module that makes them.

    F.linear                   the input's elements times the rows of the weight: profiler.py:523-526
    matmul, mm, bmm, ``@``     the first operand's elements times the other's columns: :769-774
    addmm, torch.baddbmm       the same of the two that are multiplied: :777-782, 830-835
    convolutions               window x channels x positions: :569-661
    fused attention            scores and values: :863-869
    torch.einsum               0: only its FLOPs are noted: :785-804
    recurrent layers           0: their hooks add FLOPs and no MACs: :1041-1120
    everything else            0

Only its MACs are used; its FLOPs hold additions too. On meta some of torch's operations are Python that calls patched
names (addmm calls torch.mm): such calls are in the trace, inside the operation. Places are in the DeepSpeed 0.19.8
sources (deepspeed/profiling/flops_profiler/profiler.py).
"""

import warnings
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from math import prod

from torch import Tensor, nn

from headcount.bench.counters import rules
from headcount.bench.counters.base import PRODUCT, CallCount, Reported, biased_linear_again, exact_int
from headcount.bench.trace.events import FUNCTION, MODULE, Event, Trace

with redirect_stdout(StringIO()), redirect_stderr(StringIO()), warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from deepspeed.profiling.flops_profiler import FlopsProfiler, profiler

NAME = "deepspeed"
# On meta it counts biased linear layers twice, see more_additions.
DEVICE = "cpu"
VERIFIED = {"deepspeed": "0.19.8", "torch": "2.13"}
HOOKS = True
more_additions = biased_linear_again

_RECURRENT = (nn.RNN, nn.GRU, nn.LSTM, nn.RNNCell, nn.GRUCell, nn.LSTMCell)


def read(model: nn.Module, inputs: Mapping[str, Tensor]) -> Reported:
    """Count one forward pass; it does not report what it did not count."""
    profile = FlopsProfiler(model)
    try:
        profile.start_profile()
        model(*inputs.values())
        return {"macs": exact_int(profile.get_total_macs())}
    finally:
        profile.end_profile()
        # A forward that fails leaves its open modules in the tool's own lists.
        profiler.module_flop_count.clear()
        profiler.module_mac_count.clear()
        profiler.old_functions.clear()


def _convolution(event: Event) -> dict[str, int]:
    """Count the batch times the weight's elements times the positions."""
    x, weight, padding = event.argument(0, "input"), event.argument(1, "weight"), event.argument(4, "padding")
    positions = event.out.shape[2:]
    if padding == "same":
        # Half of the padding, rounded down, on either side.
        dilation = event.argument(5, "dilation", 1)
        dilations = dilation if isinstance(dilation, tuple) else (dilation,) * len(positions)
        padded = [d * (k - 1) for d, k in zip(dilations, weight.shape[2:], strict=True)]
        positions = [size + 2 * (p // 2) - p for size, p in zip(x.shape[2:], padded, strict=True)]
    return {PRODUCT: x.shape[0] * weight.numel * prod(positions)}


def _attention(event: Event) -> dict[str, int]:
    """Count scores and values of every query and key."""
    q, k, v = (event.argument(position, name) for position, name in enumerate(("q", "k", "v")))
    return {PRODUCT: q.numel * k.shape[-2] + prod(q.shape[:-1]) * k.shape[-2] * v.shape[-1]}


def _reason(event: Event) -> str:
    # torch gives the odd element of the padding to one side, DeepSpeed's formula to none.
    return "an even window of the same size" if event.argument(4, "padding") == "same" else rules.reason(event)


TABLE: rules.Rules = {
    "torch.nn.functional.linear": (rules.linear, "profiler.py:523-526"),
    **{f"torch.nn.functional.conv{n}d": (_convolution, "profiler.py:569-611") for n in (1, 2, 3)},
    **{f"torch.nn.functional.conv_transpose{n}d": (rules.convolution, "profiler.py:614-661") for n in (1, 2, 3)},
    "torch.nn.functional.scaled_dot_product_attention": (_attention, "profiler.py:863-869"),
    **{f"torch.{name}": (rules.matmul, "profiler.py:769-774") for name in ("matmul", "mm", "bmm")},
    **{f"torch.Tensor.{name}": (rules.matmul, "profiler.py:769-774") for name in ("matmul", "mm", "bmm", "__matmul__")},
    "torch.addmm": (rules.addmm, "profiler.py:777-782"),
    **dict.fromkeys(("torch.Tensor.addmm", "torch.baddbmm"), (rules.addmm, "profiler.py:830-835")),
}
NAMES = tuple(TABLE)
"""The names whose calls the trace must record."""


def call_counts(trace: Trace) -> list[CallCount]:
    """Return what is counted for each call of a forward pass, in order."""
    return rules.apply(rules.patched_calls(trace), TABLE, "patched ", _reason)


def reason_missed(trace: Trace, event: Event) -> tuple[str, str]:
    """Return why an operation is not counted, and where in DeepSpeed that is decided."""
    for outer in trace.around(event, MODULE):
        if outer.module is not None and trace.modules[outer.module].kind in _RECURRENT:
            return f"the hook of nn.{outer.name} adds FLOPs and no MACs", "profiler.py:1041-1120"
    if next(trace.around(event, FUNCTION), event).name == "einsum":
        return "einsum: FLOPs are noted and no MACs", "profiler.py:785-804"
    return rules.reason_unpatched(trace, event, TABLE, "called by a stored reference"), "profiler.py:890-973"
