"""``python -m tests.models.traced``: print the outcome of torch.compile(fullgraph=True) per implementation as JSON.

It runs in its own process because torch.compile cannot trace the type checks of a test run.
"""

import json
import warnings

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from headcount.models.losses import auxiliary_loss
from tests.cases import cases, configurations, make_layer


def train_step(layer, inputs, run):
    """Return the output and the parameters' gradients of a training step with the auxiliary loss."""
    layer.zero_grad()
    out = run(**inputs)
    (out.square().sum() + auxiliary_loss(layer)).backward()
    return [out.detach(), *(p.grad for p in layer.parameters() if p.grad is not None)]


def compile_layer(layer):
    """Return the layer compiled as one graph, run eagerly: only the tracing is tested."""
    torch._dynamo.reset()
    return torch.compile(layer, fullgraph=True, backend="eager")


def trace_layer(layer, inputs):
    """Return "same" if the graph equals the layer, forward and backward; otherwise the reason."""
    layer.train()
    expected = train_step(layer, inputs, layer)
    try:
        found = train_step(layer, inputs, compile_layer(layer))
    except GuardOnDataDependentSymNode:
        return "sizes are values"
    same = all(torch.allclose(x, y, rtol=1e-9, atol=1e-9) for x, y in zip(found, expected, strict=True))
    return "same" if same and len(found) == len(expected) else "other numbers"


def trace_all():
    """Return the outcome of every implementation by case id, and of ``auto`` by configuration id."""
    found = {case.id: trace_layer(*make_layer(*case.values)) for case in cases("form", "router")}
    for name, config in configurations("form"):
        layer, inputs = make_layer(config, config.implementations[0])
        layer.impl = "auto"
        found[f"{name}-auto"] = trace_layer(layer, inputs), layer.impl_used
    return found


def decode_difference():
    """Return the largest difference between decoding steps of the graph and of the layer."""
    (_, config), *_ = configurations("form")
    layer, _ = make_layer(config, config.implementations[0])
    step, caches = compile_layer(layer), [layer.make_cache(2, 5) for _ in range(2)]
    x = torch.randn(2, 3, config.d_model, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        pairs = [
            [run(x[:, i : i + 1], cache=c) for run, c in zip((step, layer), caches, strict=True)] for i in (0, 1, 2)
        ]
    return max(float((one - other).abs().max()) for one, other in pairs)


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(json.dumps({"implementations": trace_all(), "decoded": decode_difference()}))
