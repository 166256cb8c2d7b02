"""Elementwise operations of an executed layer have as many elements as its closed form."""

from collections import Counter

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from headcount.bench.case import ledger_of, resolve_lengths
from headcount.formulas.ledger import OTHER_KINDS
from headcount.models.build import build, example_inputs
from headcount.models.norms import RMSNorm
from tests.cases import configurations

LENGTHS = {"batch_size": 2, "tgt_len": 7, "src_len": 11}
WIDE = dict(d_model=60, head_dim=15)
"""Heads are wider than the number of heads or experts."""
GRID = dict(d_model=60, side=4)
KINDS = {
    "softmax": "softmax",
    "relu": "activation",
    "gelu": "activation",
    "normalize": "elementwise",
    "sigmoid": "elementwise",
    "tanh": "elementwise",
}
PAIRED = ("add", "sub", "mul", "div")
SAME = {"bias": "elementwise", "expert_bias": "elementwise"}
"""Additions of biases are elementwise operations."""


class ElementCounter(TorchFunctionMode):
    """Count output elements of called functions by kind, and input elements of reductions.

    Scalings by a number are left out, and results of at most ``of_gates`` elements: gates, factors and indices. No
    closed form has them.
    """

    def __init__(self, of_gates: int) -> None:
        super().__init__()
        self.of_gates = of_gates
        self.elements: Counter[str] = Counter()
        self.within_norm = False

    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func.__name__
        if self.within_norm:
            return out
        if name in KINDS:
            self.elements[KINDS[name]] += out.numel()
        elif name in PAIRED and isinstance(args[1], Tensor) and out.is_floating_point() and out.numel() > self.of_gates:
            self.elements["elementwise"] += out.numel()
        elif name == "linear" and args[2:] not in ((), (None,)):
            self.elements["elementwise"] += out.numel()
        elif name == "adaptive_avg_pool2d":
            self.elements["pooling"] += args[0].numel()
        elif name == "linalg_vector_norm":
            self.elements["elementwise"] += args[0].numel()
        return out

    def watch(self, module: nn.Module, kind: str) -> None:
        """Count the outputs of a norm, without the operations inside."""

        def enter(*_):
            self.within_norm = True

        def leave(module, inputs, out):
            self.within_norm = False
            self.elements[kind] += out.numel()

        module.register_forward_pre_hook(enter)
        module.register_forward_hook(leave)


def executed_elements(config, inputs):
    """Return elements by kind of one run of a layer's reference implementation."""
    layer = build(config).eval()
    layer.impl = config.implementations[0].name
    letters = config.letters()
    rows = max(x.shape[0] * x.shape[1] for x in inputs.values())
    mode = ElementCounter(of_gates=rows * max(letters.get("h", 0), letters.get("E", 0)))
    for module in layer.modules():
        if isinstance(module, nn.LayerNorm | RMSNorm):
            mode.watch(module, "norm" if isinstance(module, nn.LayerNorm) else "rms_norm")
    with torch.no_grad(), mode:
        layer(**inputs)
    return dict(mode.elements)


def expected_elements(config):
    """Return elements by kind of the closed form."""
    sizes = resolve_lengths(config, {name: LENGTHS[name] for name in config.lengths})
    form = ledger_of(config, sizes).select(lambda entry: entry.kind in OTHER_KINDS)
    return form.group(lambda entry: SAME.get(entry.kind, entry.kind), "size")


CASES = [
    pytest.param(config, id="-".join((name, *which)))
    for which, sizes in (((), WIDE), (("pooled",), GRID | {"pool_ratio": 2}), (("whole",), GRID | {"pool_ratio": 1}))
    for name, config in configurations("form", "router", "gates", **sizes)
]


@pytest.mark.parametrize("config", CASES)
def test_every_element_is_counted(config):
    assert executed_elements(config, example_inputs(config, LENGTHS)) == expected_elements(config)
