"""Rules of the module hooks of ptflops 0.7.5 (pytorch_ops.py): the operations that a call of each module type adds."""

from collections.abc import Callable, Mapping
from math import prod

from torch import nn

from headcount.bench.counters.base import PRODUCT
from headcount.bench.counters.rules import elements
from headcount.bench.trace.events import Event, ModuleFact

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


_POOLS = _by_dimension("MaxPool", "AvgPool", "AdaptiveMaxPool", "AdaptiveAvgPool")
_NORMS = (*_by_dimension("BatchNorm", "InstanceNorm"), nn.GroupNorm, nn.LayerNorm)

HOOKED: Mapping[type, tuple[Callable[[Event, ModuleFact], Parts], str]] = {
    nn.Linear: (_linear, "35-43"),
    **dict.fromkeys(
        (nn.ReLU, nn.PReLU, nn.ELU, nn.LeakyReLU, nn.ReLU6, nn.GELU), (elements("activation", of_output=True), "30-32")
    ),
    **dict.fromkeys(_POOLS, (elements("pooling"), "46-48")),
    **dict.fromkeys(_NORMS, (_norm, "51-57")),
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
