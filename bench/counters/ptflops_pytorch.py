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

from collections.abc import Callable, Mapping
from itertools import zip_longest
from math import prod

from torch import Tensor, nn

from headcount.bench.counters import ptflops_run, rules
from headcount.bench.counters.base import PRODUCT, TORCH, CallCount, Reported, biased_linear_again, total
from headcount.bench.trace.events import MODULE, Event, ModuleFact, TensorFact, Trace

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

    ``unsupported`` are the module types that ptflops calls zero-ops (pytorch_engine.py:231); it does not name
    functions. Totals above 2**53 would be rounded: the module sum passes through a float (:199).
    """
    macs, report = ptflops_run.run(model, inputs, backend="pytorch")
    types = [type(module).__name__ for module in model.modules()]
    zero_ops = {line.split()[2] for line in report.splitlines() if line.endswith("is treated as a zero-op.")}
    unsupported = {name: types.count(name) for name in dict.fromkeys(types) if name in zero_ops}
    return {"macs": macs, "unsupported": unsupported}


# Module hooks: the operations that a call of each module type adds (pytorch_ops.py)

Parts = Mapping[str, int]


def _linear(event: Event, module: ModuleFact) -> Parts:
    """Count the input's elements times the output's last size."""
    rows = prod(event.args[0].shape[:-1])
    columns = event.out.shape[-1]
    return {PRODUCT: rows * event.args[0].shape[-1] * columns, "bias": rows * columns * _has(module, "bias")}


def _upsample(event: Event, module: ModuleFact) -> Parts:
    """Count the first sample of the output."""
    return {"interpolation": prod(event.out.shape[1:])}


def _norm(event: Event, module: ModuleFact) -> Parts:
    return {"norm": event.args[0].numel * (2 if module.attributes.get("affine") else 1)}


def _convolution(event: Event, module: ModuleFact) -> Parts:
    """Count the window of every output channel times the input's first size times the positions."""
    x, a = event.args[0], module.attributes
    window = prod(a["kernel_size"]) * a["in_channels"] * (a["out_channels"] // a["groups"])
    positions = x.shape[0] * prod((x if a["transposed"] else event.out).shape[2:])
    return {PRODUCT: window * positions, "bias": event.out.numel * _has(module, "bias")}


def _recurrent(extra_per_unit: int) -> Callable[[Event, ModuleFact], Parts]:
    """Count both matrices of each layer for every row and ``extra_per_unit`` gate operations per hidden unit."""

    def rule(event: Event, module: ModuleFact) -> Parts:
        """Count weight_ih and weight_hh, not weight_hr, for the input's first two sizes (a cell: the first)."""
        both = ("weight_ih", "weight_hh")
        weights = [s for n, s in module.parameters.items() if s and n.startswith(both) and "reverse" not in n]
        biases = [s for n, s in module.parameters.items() if s and n.startswith("bias_") and "reverse" not in n]
        # A cell has no layers and no sequence.
        layers = module.attributes.get("num_layers", 1)
        lengths = event.args[0].shape[: 2 if "num_layers" in module.attributes else 1]
        rows = prod(lengths) * (2 if module.attributes.get("bidirectional") else 1)
        gates = layers * extra_per_unit * module.attributes["hidden_size"]
        return {PRODUCT: rows * sum(map(prod, weights)), "gates": rows * gates, "bias": rows * sum(map(prod, biases))}

    return rule


def _multihead(event: Event, module: ModuleFact) -> Parts:
    """Count attention, and each projection as a square of the width of its query, key or value."""
    q, k, v = (fact.shape for fact in event.args)
    batch, length = (q[0], 1) if module.attributes["batch_first"] else (q[1], 0)
    queries, keys, values = q[length], k[length], v[length]
    width, k_width, v_width, heads = q[2], k[2], v[2], module.attributes["num_heads"]
    projections = queries * width**2 + keys * k_width**2 + values * v_width**2 + queries * v_width**2
    attention = heads * queries * keys * (width // heads + v_width // heads)
    in_bias = (queries + keys + values) * width * _has(module, "in_proj_bias")
    return {
        PRODUCT: batch * (projections + attention),
        "query scaling": batch * queries * width,
        "bias": batch * (in_bias + queries * v_width),
        "softmax": batch * heads * queries * keys,
    }


def _has(module: ModuleFact, parameter: str) -> bool:
    return module.parameters.get(parameter) is not None


def _by_dimension(*names: str) -> tuple[type, ...]:
    """Return the layers ``nn.<name>1d``, ``2d`` and ``3d`` of each name."""
    return tuple(getattr(nn, f"{name}{n}d") for name in names for n in (1, 2, 3))


_ACTIVATION_LAYERS = (nn.ReLU, nn.PReLU, nn.ELU, nn.LeakyReLU, nn.ReLU6, nn.GELU)
_POOL_LAYERS = _by_dimension("MaxPool", "AvgPool", "AdaptiveMaxPool", "AdaptiveAvgPool")
_NORM_LAYERS = (*_by_dimension("BatchNorm", "InstanceNorm"), nn.GroupNorm, nn.LayerNorm)

HOOKED: Mapping[type, tuple[Callable[[Event, ModuleFact], Parts], str]] = {
    nn.Linear: (_linear, "35-43"),
    **dict.fromkeys(_ACTIVATION_LAYERS, (rules.elements("activation", of_output=True), "30-32")),
    **dict.fromkeys(_POOL_LAYERS, (rules.elements("pooling"), "46-48")),
    **dict.fromkeys(_NORM_LAYERS, (_norm, "51-57")),
    nn.Upsample: (_upsample, "21-27"),
    **dict.fromkeys(_by_dimension("Conv", "ConvTranspose"), (_convolution, "60-92")),
    nn.RNN: (_recurrent(1), "105-160"),
    nn.GRU: (_recurrent(7), "105-160"),
    nn.LSTM: (_recurrent(10), "105-160"),
    nn.RNNCell: (_recurrent(1), "105-127, 163-177"),
    nn.GRUCell: (_recurrent(7), "105-127, 163-177"),
    nn.LSTMCell: (_recurrent(10), "105-127, 163-177"),
    nn.MultiheadAttention: (_multihead, "180-243"),
}
"""Rule and lines in pytorch_ops.py of each type with a hook. ptflops lists the types in lines 271-336."""


# Patched functions


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
