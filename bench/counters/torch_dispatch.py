"""PyTorch's own counter, torch.utils.flop_counter.FlopCounterMode: a dispatch mode that counts FLOPs.

Composite operations are taken apart first (torch/utils/flop_counter.py:1050-1055). Its table is :729-751; every
operation that is not in it is 0 without a warning, grouped products among them, and before torch 2.15 fused attention
on the CPU. MACs are its FLOPs / 2, forward and backward. Places are in the torch 2.13 sources.
"""

from collections.abc import Callable, Mapping
from math import prod

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from headcount.bench.counters.base import CounterResult, macs_from_flops
from headcount.bench.counters.call_counts import PRODUCT, TORCH, CallCount, why
from headcount.bench.counters.run_context import arguments, device_of, run_context
from headcount.bench.trace.events import OPERATION, Event, TensorFact, Trace
from headcount.bench.trace.shapes import cache_shapes

NAME = "torch"
DEVICE = "meta"
VERIFIED = {"torch": TORCH}
HOOKS = False
ADDS = {}
"""addmm and convolution leave the bias out (torch/utils/flop_counter.py:88-90, 131-178)."""


def read(model: nn.Module, inputs: Mapping[str, Tensor], *, label: str) -> CounterResult:
    """Count one forward pass over the whole batch; ``inputs`` are forward's parameters by name.

    MACs are its FLOPs / 2. It does not report what it did not count: an operator without a formula is 0 without
    a warning. ``by_module`` holds only modules with FLOPs. Raises CounterError.
    """
    with run_context(model, counter=NAME, label=label):
        with cache_shapes(model), FlopCounterMode(display=False) as mode:
            model(*arguments(model, inputs))
        counts = mode.get_flop_counts()
        counts.pop("Global", None)
        return CounterResult(
            counter=NAME,
            tool="torch",
            version=torch.__version__,
            device=device_of(inputs),
            macs=macs_from_flops(mode.get_total_flops()),
            by_module={
                _path(name, type(model).__name__): macs_from_flops(sum(flops.values()))
                for name, flops in counts.items()
            },
        )


def _path(name: str, root: str) -> str:
    """Return a module path without the root's class name (module_tracker.py:90-99)."""
    return "" if name == root else name.removeprefix(f"{root}.")


_FILE = "torch/utils/flop_counter.py"


def _product(first: int) -> Callable[[Event], int]:
    return lambda event: event.args[first].numel * event.args[first + 1].shape[-1]


def _window(x: tuple, weight: tuple, out: tuple, transposed: bool) -> int:
    return prod((x if transposed else out)[2:]) * prod(weight) * x[0]


def _convolution(event: Event) -> int:
    x, weight = event.args[:2]
    return _window(x.shape, weight.shape, event.out.shape, event.args[6])


def _convolution_backward(event: Event) -> int:
    """Count both gradients as convolutions; with groups, the weight's is that of the whole channels."""
    gradient, x, weight = (fact.shape for fact in event.args[:3])
    transposed, mask, out = event.args[7], event.args[10], event.out
    macs = 0
    if mask[0]:
        macs += _window(gradient, weight, out[0].shape, not transposed)
    if mask[1]:
        turned = [(s[1], s[0], *s[2:]) for s in (x, gradient, out[1].shape)]
        macs += _window(turned[1], turned[0], turned[2], False) if transposed else _window(*turned, False)
    return macs


def _attention(event: Event) -> int:
    return _forward(*(fact.shape for fact in event.args[:3]))


def _forward(q: tuple, k: tuple, v: tuple) -> int:
    return q[0] * q[1] * q[2] * k[2] * (q[3] + v[3])


def _attention_backward(event: Event) -> int:
    """Count five products: the scores are recomputed."""
    q, k, v = (fact.shape for fact in event.args[1:4])
    return q[0] * q[1] * q[2] * k[2] * (3 * q[3] + 2 * v[3])


def _flash(event: Event) -> int | None:
    """Count the raw kernel, whose formula before torch 2.14 takes (B, T, h, d) as (B, h, T, d)."""
    if isinstance(event.args[3], TensorFact):
        return None
    shapes = (fact.shape for fact in event.args[:3])
    if torch.__version__ >= (2, 14):
        shapes = ((s[0], s[2], s[1], s[3]) for s in shapes)
    return _forward(*shapes)


_FUSED = [f"_scaled_dot_product_{kernel}_attention" for kernel in ("efficient", "flash", "cudnn")]
if torch.__version__ >= (2, 15):
    _FUSED.append("_scaled_dot_product_flash_attention_for_cpu")
TABLE: dict[str, tuple[Callable[[Event], int | None], str]] = {
    "mm": (_product(0), "76-86"),
    "addmm": (_product(1), "88-91"),
    "bmm": (_product(0), "93-105"),
    "baddbmm": (_product(1), "108-112"),
    "_scaled_mm": (_product(0), "114-128"),
    **dict.fromkeys(
        ("convolution", "_convolution", "cudnn_convolution", "_slow_conv2d_forward", "convolution_overrideable"),
        (_convolution, "131-177"),
    ),
    "convolution_backward": (_convolution_backward, "181-282"),
    **dict.fromkeys(_FUSED, (_attention, "285-319")),
    **{f"{name}_backward": (_attention_backward, "505-546") for name in _FUSED},
    "_flash_attention_forward": (_flash, "442-470"),
}
if torch.__version__ >= (2, 15):
    # FlexAttention has been in torch's table for longer, where its mode did not look for operators of this sort
    TABLE["flex_attention"] = (_attention, "615-647")


def call_counts(trace: Trace) -> list[CallCount]:
    """Return what is counted for each operation of a run, in order."""
    out = []
    for event in trace.operations():
        if event.what == OPERATION and event.name in TABLE:
            rule, lines = TABLE[event.name]
            macs = rule(event)
            if macs is not None:
                place = f"{_FILE}:{lines}"
                out.append(CallCount(event.index, {PRODUCT: macs}, f"aten.{event.name}", place, differs=why(event)))
    return out


def missed(trace: Trace, event: Event) -> tuple[str, str]:
    """Return why an operation is not counted, and where in torch that is decided."""
    return f"aten.{event.name} is not in its table", f"{_FILE}:729-751"
