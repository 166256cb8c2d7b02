"""ptflops, backend ``pytorch``: forward hooks by exact module type, and Python functions patched by name.

    a module call          what the hook of its exact type adds, once for every parent that it is registered
                           under; a module with a hook hides the hooks of its children
                           (pytorch_engine.py:96-103, 231-245, 311-314)
    a call by a patched    what that name's handler adds; not calls of operators (``@``, ``+``), of stored references
    name                   or of other names (pytorch_engine.py:348-390, 434-474)
    module sums            are divided by the length of the model's first positional argument, functional ones
                           are not (pytorch_engine.py:70-71, 199, 267-277)

On meta some of torch's operations are Python that calls patched names (addmm calls torch.mm): such calls are in
the trace, inside the operation. Places are in the ptflops 0.7.5 sources.
"""

from collections.abc import Mapping
from itertools import zip_longest
from math import prod

from torch import Tensor, nn

from headcount.bench.counters import ptflops_run, rules
from headcount.bench.counters.base import TORCH, CallCount, Reported, biased_linear_again, total
from headcount.bench.counters.ptflops_hooks import HOOKED
from headcount.bench.trace.events import MODULE, Event, TensorFact, Trace

NAME = "ptflops-pytorch"
# On meta it counts biased linear layers twice, see more_additions.
DEVICE = "cpu"
VERIFIED = {"ptflops": "0.7.5", "torch": TORCH}
HOOKS = True
ADDS = {"bias": 1, "norm": 1, "activation": 1, "pooling": 1}
"""Biases and nn.LayerNorm in module hooks (pytorch_ops.py:41, 87, 51-57), F.relu, F.gelu, F.silu and
F.adaptive_avg_pool2d patched (pytorch_engine.py:348-390). Not torch.softmax, ``+`` and ``*``,
nor nn.Embedding, which has no hook."""
more_additions = biased_linear_again
TWICE = "pytorch_engine.py:96-103"
"""Modules registered under p parents are counted p times; a ledger does not hold that."""


def read(model: nn.Module, inputs: Mapping[str, Tensor]) -> Reported:
    """Count one forward pass.

    ``params`` are the trainable ones (pytorch_engine.py:161). ``unsupported`` are the module types that ptflops
    calls zero-ops (:231); it does not name functions. Totals above 2**53 would be rounded: the module sum
    passes through a float (:199).
    """
    macs, params, report = ptflops_run.run(model, inputs, backend="pytorch")
    types = [type(module).__name__ for module in model.modules()]
    zero_ops = {line.split()[2] for line in report.splitlines() if line.endswith("is treated as a zero-op.")}
    unsupported = {name: types.count(name) for name in dict.fromkeys(types) if name in zero_ops}
    return {"macs": macs, "params": params, "unsupported": unsupported}


def _addmm(event: Event) -> dict[str, int]:
    """Count the first operand's elements times the other's last size."""
    added = 0 if event.kwargs.get("beta") == 0 else event.argument(0, "input").numel
    return {**rules.addmm(event), "added matrix": added}


def _elementwise(event: Event) -> dict[str, int]:
    """Multiply the larger sizes, compared from the left, unlike torch's broadcasting."""
    shapes = [x.shape for x in (event.argument(0, "input"), event.argument(1, "other")) if isinstance(x, TensorFact)]
    return {"elementwise": prod(max(sizes) for sizes in zip_longest(*shapes, fillvalue=1))}


def _interpolate(event: Event) -> dict[str, int]:
    x, size, scale = event.argument(0, "input"), event.argument(1, "size"), event.argument(2, "scale_factor")
    window = len(x.shape) - 2
    if size is not None:
        return {"interpolation": (prod(size) if isinstance(size, tuple) else int(size) ** window) * prod(x.shape[:2])}
    if isinstance(scale, tuple) and len(scale) == window:
        return {"interpolation": x.numel * prod(int(s) for s in scale)}
    return {"interpolation": int(x.numel * scale**window)}


_ACTIVATIONS = ("relu", "prelu", "elu", "relu6", "gelu", "silu")
_POOLS = tuple(f"{kind}_pool{n}d" for kind in ("avg", "max", "adaptive_avg", "adaptive_max") for n in (1, 2, 3))
_ADDMM = ("torch.addmm", "torch.Tensor.addmm", "torch.baddbmm")


def _of_torch(*names: str) -> list[str]:
    return [f"{owner}.{name}" for owner in ("torch", "torch.Tensor") for name in names]


def _functional(*names: str) -> list[str]:
    return [f"torch.nn.functional.{name}" for name in names]


HANDLERS: rules.Rules = {
    **dict.fromkeys(_of_torch("matmul", "mm", "bmm"), (rules.matmul, "pytorch_ops.py:385-387")),
    **dict.fromkeys(_ADDMM, (_addmm, "pytorch_ops.py:390-394")),
    **dict.fromkeys(_of_torch("mul", "add"), (_elementwise, "pytorch_ops.py:397-419")),
    **dict.fromkeys(_functional(*_ACTIVATIONS), (rules.elements("activation"), "pytorch_ops.py:347-348")),
    **dict.fromkeys(_functional(*_POOLS), (rules.elements("pooling"), "pytorch_ops.py:347-348")),
    **dict.fromkeys(_functional("softmax"), (rules.elements("softmax"), "pytorch_ops.py:347-348")),
    **dict.fromkeys(_functional("upsample", "interpolate"), (_interpolate, "pytorch_ops.py:351-382")),
}
NAMES = tuple(HANDLERS)
"""The names whose calls the trace must record."""


def call_counts(trace: Trace) -> list[CallCount]:
    """Return what is counted for each call of a forward pass, in order."""
    visits = _visits(trace)
    out = rules.apply(rules.patched_calls(trace), HANDLERS, "patched ")
    for event in trace.events:
        if event.what == MODULE and event.module is not None and visits[event.module]:
            module = trace.modules[event.module]
            rule, lines = HOOKED[module.kind]
            name, place = f"hook of nn.{module.kind.__name__}", f"pytorch_ops.py:{lines}"
            reason = rules.ONE_CALL if event.transformed else rules.formula_of(rule)
            out.append(CallCount(event.index, rule(event, module), name, place, visits[event.module], reason))
    return sorted(out, key=lambda call_count: call_count.event)


def _visits(trace: Trace) -> list[int]:
    """Return how often each module with a hook is visited by the sum over the tree of modules."""
    times = [0] * len(trace.modules)
    waiting = [0]
    while waiting:
        number = waiting.pop()
        module = trace.modules[number]
        if module.kind in HOOKED:
            times[number] += 1
        else:
            waiting += module.children
    return times


def sum_counts(trace: Trace, call_counts: list[CallCount]) -> int:
    """Return the total. Module sums pass through a float; they are divided by 1, because inputs go by keyword."""
    hooks = total(call_count for call_count in call_counts if trace.events[call_count.event].what == MODULE)
    return int(float(hooks) + (total(call_counts) - hooks))


def reason_missed(trace: Trace, event: Event) -> tuple[str, str]:
    """Return why an operation is not counted, and where in ptflops that is decided."""
    for outer in trace.around(event, MODULE):
        if outer.module is not None:
            kind = trace.modules[outer.module].kind
            base = next((known for known in HOOKED if kind is not known and issubclass(kind, known)), None)
            if base is not None:
                return f"{kind.__name__} is not exactly nn.{base.__name__}: no hook", "pytorch_engine.py:311-314"
    reason = rules.reason_unpatched(trace, event, HANDLERS, "called as an operator or by a stored reference")
    return reason, "pytorch_engine.py:348-390, 434-474"
