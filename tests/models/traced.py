"""``python -m tests.models.traced``: what torch.compile(fullgraph=True) says of every arm, as JSON.

In a process of its own: the type checks of a test run are Python that no graph holds.
"""

import json
import warnings

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from headcount.models.losses import auxiliary_loss
from tests.cases import cases, configurations, made


def trained(layer, inputs, run):
    """The output, and the gradients of the parameters, of a step with the layer's own losses."""
    layer.zero_grad()
    out = run(**inputs)
    (out.square().sum() + auxiliary_loss(layer)).backward()
    return [out.detach(), *(p.grad for p in layer.parameters() if p.grad is not None)]


def compiled(layer):
    """The layer as one graph, run as it stands: what is tested is the tracing."""
    torch._dynamo.reset()
    return torch.compile(layer, fullgraph=True, backend="eager")


def outcome(layer, inputs):
    """``same`` where one graph gives what the layer gives, forward and backward; else what is in the way."""
    layer.train()
    expected = trained(layer, inputs, layer)
    try:
        found = trained(layer, inputs, compiled(layer))
    except GuardOnDataDependentSymNode:
        return "sizes are values"
    same = all(torch.allclose(x, y, rtol=1e-9, atol=1e-9) for x, y in zip(found, expected, strict=True))
    return "same" if same and len(found) == len(expected) else "other numbers"


def outcomes():
    """Of every arm by the id of its case, of ``auto`` by its layer's, and of a step of decoding."""
    found = {case.id: outcome(*made(*case.values)) for case in cases("form", "router")}
    for name, config in configurations("form"):
        layer, inputs = made(config, config.implementations[0])
        layer.impl = "auto"
        found[f"{name}-auto"] = outcome(layer, inputs), layer.impl_used
    return found


def decoded():
    """The largest difference between steps of one graph and of the layer itself."""
    (_, config), *_ = configurations("form")
    layer, _ = made(config, config.implementations[0])
    step, caches = compiled(layer), [layer.make_cache(2, 5) for _ in range(2)]
    x = torch.randn(2, 3, config.d_model, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        pairs = [
            [run(x[:, i : i + 1], cache=c) for run, c in zip((step, layer), caches, strict=True)] for i in (0, 1, 2)
        ]
    return max(float((one - other).abs().max()) for one, other in pairs)


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(json.dumps({"implementations": outcomes(), "decoded": decoded()}))
