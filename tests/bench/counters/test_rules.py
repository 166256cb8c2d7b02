"""The rules of each tool predict its count exactly, on layers of torch too."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from headcount.bench.counters import ptflops_pytorch
from headcount.bench.counters.explain import ADDED, TWICE
from headcount.bench.counters.results import read
from headcount.bench.trace.record import record


class Calls(nn.Module):
    """A forward that is a function of the module and its inputs, with children by keyword."""

    def __init__(self, function, **children):
        super().__init__()
        self.function = function
        for name, child in children.items():
            setattr(self, name, child)

    def forward(self, *inputs):
        return self.function(self, *inputs)


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        return torch.mm(x, w)


def shared():
    inner = nn.Linear(6, 6)
    return nn.Sequential(inner, nn.Sequential(inner, nn.ReLU()), inner)


def kept():
    gelu, einsum = F.gelu, torch.einsum
    return Calls(lambda m, x: gelu(einsum("ab,cb->ac", x, x)))


def dead(m, x):
    m.b(x)
    return m.a(x)


def checkpointed(m, x):
    return torch.utils.checkpoint.checkpoint(m.a, x, use_reentrant=False)


def under_a_mode(m, x):
    # torch.device is a function mode: operators and kept references then arrive by their patched names.
    with torch.device(x.device):
        return F.softmax(x @ x.T + F.relu(m.a(x)), -1)


def inferred(m, x):
    with torch.inference_mode():
        return m.a(x)


X = (5, 6)
SEQ = (3, 5, 6)
IMAGE = (2, 4, 9, 10)
CASES = {
    "activations": (lambda: nn.Sequential(nn.GELU(), nn.ReLU(), nn.SiLU(), nn.LeakyReLU(), nn.ELU(), nn.PReLU()), [X]),
    "shared modules": (shared, [X]),
    "kept references": (kept, [X]),
    "dead code": (lambda: Calls(dead, a=nn.Linear(6, 7), b=nn.Linear(6, 8)), [X]),
    "a function": (lambda: Calls(lambda m, x, w: Twice.apply(x, w) + 1), [(5, 6), (6, 7)]),
    "logsumexp": (lambda: Calls(lambda m, x: x.logsumexp(-1) + F.log_softmax(x, -1).sum()), [X]),
    "broadcast": (lambda: Calls(lambda m, a, b: torch.matmul(a, b)), [(3, 1, 5, 6), (4, 6, 7)]),
    "left-aligned addition": (lambda: Calls(lambda m, a, b: torch.add(a, b).mul(2)), [(3, 5, 5), (5, 5)]),
    "three operands": (lambda: Calls(lambda m, a, b, c: torch.einsum("ab,bc,cd->ad", a, b, c)), [X, (6, 7), (7, 8)]),
    "elementwise einsum": (lambda: Calls(lambda m, a, b: torch.einsum("ab,ab->ab", a, b)), [(17, 61), (17, 61)]),
    "norms": (
        lambda: nn.Sequential(nn.LayerNorm(10), nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.InstanceNorm2d(4)),
        [IMAGE],
    ),
    "plain norms": (lambda: nn.Sequential(nn.LayerNorm(10, elementwise_affine=False), nn.RMSNorm(10)), [IMAGE]),
    "pooling": (lambda: nn.Sequential(nn.MaxPool2d(2), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1)), [IMAGE]),
    "interpolation": (
        lambda: nn.Sequential(nn.Upsample(scale_factor=2), nn.Upsample(size=(7, 5), mode="bilinear")),
        [IMAGE],
    ),
    "convolutions": (
        lambda: nn.Sequential(nn.Conv2d(4, 6, 3, groups=2), nn.ConvTranspose2d(6, 4, 2, bias=False)),
        [IMAGE],
    ),
    "same padding": (lambda: nn.Conv1d(5, 7, 3, padding="same"), [SEQ]),
    "unbatched convolution": (lambda: Calls(lambda m, x, w: F.conv1d(x, w)), [(5, 6), (7, 5, 3)]),
    "recurrent": (lambda: nn.LSTM(6, 7, num_layers=2, bidirectional=True, batch_first=True), [SEQ]),
    "gru": (lambda: nn.GRU(6, 7), [SEQ]),
    "cells": (lambda: Calls(lambda m, x: m.b(m.a(x)[0]), a=nn.LSTMCell(6, 7), b=nn.GRUCell(7, 8)), [X]),
    "subclass": (lambda: type("Mine", (nn.Linear,), {})(6, 7), [X]),
    "non-contiguous": (lambda: Calls(lambda m, x: m.a(x.transpose(0, 1)), a=nn.Linear(6, 7)), [SEQ]),
    "a mode of its own": (lambda: Calls(under_a_mode, a=nn.Linear(6, 5)), [X]),
    "inference mode": (lambda: Calls(inferred, a=nn.Linear(6, 7)), [X]),
    "checkpoint": (lambda: Calls(checkpointed, a=nn.Linear(6, 7)), [X]),
    "forward called directly": (lambda: Calls(lambda m, x: m.a.forward(x), a=nn.Linear(6, 7)), [X]),
    "encoder layer": (lambda: nn.TransformerEncoderLayer(6, 2, 11, batch_first=True, activation="gelu"), [SEQ]),
    "encoder": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 11), 2, enable_nested_tensor=False),
        [SEQ],
    ),
    "transformer": (lambda: nn.Transformer(6, 2, 1, 1, 11, batch_first=True), [SEQ, (3, 7, 6)]),
    "buffer": (
        lambda: Calls(lambda m, x: m.kept.copy_(m.a(x)).sum(), a=nn.Linear(6, 6), kept=nn.Buffer(torch.zeros(X))),
        [X],
    ),
    "vectors": (lambda: Calls(lambda m, x, v: torch.mv(x, v)), [X, (6,)]),
}


def case(name, device):
    build, shapes = CASES[name]
    return build().to(device).eval(), [torch.ones(shape, device=device) for shape in shapes]


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("name", CASES)
def test_rules_give_the_count(name, device):
    module, inputs = case(name, device)
    for cell in read(module, inputs, label=name).counters:
        assert cell.explained, f"{cell.counter} reads {cell.macs}, {cell.explanation}"


def causes(name, counter, device="cpu"):
    module, inputs = case(name, device)
    (cell,) = read(module, inputs, label=name, counters=[counter]).counters
    return cell.difference, [(cause.what, cause.amount) for cause in cell.explanation.causes]


def test_shared_module_counts_per_parent():
    # Three calls of 5 x 6 x 6 products and 5 x 6 biases; it is registered under two parents.
    products, biases = 3 * 5 * 6 * 6, 3 * 5 * 6
    # The ReLU counts by its hook, and once more by the F.relu that it calls.
    assert causes("shared modules", "ptflops-pytorch") == (
        products + 2 * biases + 2 * 5 * 6,
        [(ADDED, biases), (TWICE, products + biases), (ADDED, 5 * 6), (ADDED, 5 * 6)],
    )


def test_hooks_leave_the_fast_path():
    # With fvcore's hooks it leaves torch's fast path, which torch's counter meets and does not know.
    module, inputs = case("encoder layer", "cpu")
    cells = {cell.counter: cell for cell in read(module, inputs, label="layer").counters}
    assert [c.name for c in cells["torch"].explanation.causes] == [
        "aten._transformer_encoder_layer_fwd is not in its table"
    ]
    assert cells["torch"].macs == 0 < cells["fvcore"].macs


def test_module_sums_are_per_sample():
    from ptflops import get_model_complexity_info

    model = nn.Sequential(nn.Linear(6, 7), nn.GELU())
    x = torch.ones(3, 5, 6)
    macs, _ = get_model_complexity_info(
        model, (5, 6), as_strings=False, print_per_layer_stat=False, input_constructor=lambda _: x, backend="pytorch"
    )
    trace = record(model, (x,), names=ptflops_pytorch.NAMES)
    call_counts = ptflops_pytorch.call_counts(trace)
    assert ptflops_pytorch.summed(trace, call_counts, batch=3) == macs == 5 * 6 * 7 + 5 * 7 + 5 * 7 + 3 * 5 * 7


def test_failing_tool_has_reason():
    # fvcore's handle for matmul refuses a vector (jit_handles.py:224), ptflops' hook a call by keyword.
    module = Calls(lambda m, x: torch.matmul(m.a(input=x), x[0]), a=nn.Linear(6, 6, bias=False))
    cells = {c.counter: c for c in read(module, [torch.ones(X)], label="by keyword").counters}
    assert cells["fvcore"].reason.startswith("IndexError") and cells["fvcore"].macs is None
    assert cells["ptflops-pytorch"].reason.startswith("IndexError")
    assert (cells["torch"].macs, cells["torch"].exact) == (5 * 6 * 6, 5 * 6 * 6 + 5 * 6)
    assert all(cell.explained for cell in cells.values())
