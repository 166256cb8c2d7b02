"""Counts of each tool, by hand on prime sizes, and the causes of their differences from headcount's."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

from headcount.bench.counters import registry
from headcount.bench.counters.base import additions, predict
from headcount.bench.counters.explain import ADDED, DIFFERS, MISSED, TWICE
from headcount.bench.counting.tools import read
from headcount.formulas.ledger import Entry, Ledger
from tests.bench.contractions.function_modules import Calls, module

PTFLOPS, ATEN, FVCORE, TORCH, DEEPSPEED = "ptflops-pytorch", "ptflops-aten", "fvcore", "torch", "deepspeed"
X, Y, WEIGHT, IMAGE = (3, 5, 7), (7, 11), (11, 7), (3, 5, 7, 13)
ELEMENTS, LINEAR, BIAS, SQUARE = 3 * 5 * 7, 3 * 5 * 7 * 11, 3 * 5 * 11, 3 * 5 * 7 * 7


def by_all(macs):
    """Return ``macs`` as the expected count of every tool."""
    return dict.fromkeys((PTFLOPS, ATEN, FVCORE, TORCH, DEEPSPEED), macs)


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        return torch.mm(x, w)


class LinearSubclass(nn.Linear):
    """A subclass of nn.Linear."""


def shared_layer():
    inner = nn.Linear(7, 7, bias=False)
    return nn.Sequential(inner, nn.Sequential(inner, nn.ReLU()), inner)


def overridden_forward():
    """Return a layer whose forward calls a function that ptflops patches."""
    layer = nn.Linear(7, 11, bias=False)
    layer.forward = lambda x: torch.matmul(x, layer.weight.mT)
    return layer


def stored_references():
    gelu, einsum = F.gelu, torch.einsum
    return Calls(lambda m, x: gelu(einsum("ab,cb->ac", x, x)))


def multiply_after_failure(x, w):
    try:
        return torch.mm(x, w.mT)
    except RuntimeError:
        return torch.mm(x, w)


@torch.library.custom_op("headcount_counters::linear", mutates_args=())
def library_linear(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.matmul(x, w.mT)


@library_linear.register_fake
def _(x, w):
    return x.new_empty(x.shape[0], w.shape[0])


def with_unused_linear(x, w):
    F.linear(x, w)
    return x + 1


def run_checkpointed(m, x):
    return torch.utils.checkpoint.checkpoint(m.a, x, use_reentrant=False)


def run_in_device_mode(m, x):
    # torch.device is a function mode: operators and stored references then arrive by their patched names.
    with torch.device(x.device):
        return F.softmax(x @ x.T + F.relu(m.a(x)), -1)


def run_in_inference_mode(m, x):
    with torch.inference_mode():
        return m.a(x)


def attend(q, k):
    return F.scaled_dot_product_attention(q, k, k)


# fvcore's norms: 5 an element with a scale and 4 without, 2 or 1 for a batch norm's running statistics.
FUNCTIONS = {
    "linear": (lambda x, w: F.linear(input=x, weight=w), [X, WEIGHT], {FVCORE: LINEAR, ATEN: LINEAR, TORCH: LINEAR}),
    "matmul": (lambda x, w: torch.matmul(input=x, other=w), [X, Y], by_all(LINEAR)),
    "operator": (lambda x: x @ x.mT, [X], {**by_all(3 * 5 * 5 * 7), PTFLOPS: 0}),
    "mm": (lambda x, w: torch.mm(input=x, mat2=w), [(5, 7), Y], {PTFLOPS: None, FVCORE: 5 * 7 * 11}),
    "bmm": (lambda x, w: torch.bmm(input=x, mat2=w), [X, (3, 7, 11)], {PTFLOPS: None, FVCORE: LINEAR}),
    "baddbmm": (lambda a, x, w: torch.baddbmm(a, x, w), [(3, 5, 11), X, (3, 7, 11)], {DEEPSPEED: LINEAR}),
    "addmm": (
        lambda a, x, w: torch.addmm(input=a, mat1=x, mat2=w),
        [(5, 11), (5, 7), Y],
        {PTFLOPS: 5 * 7 * 11 + 5 * 11, FVCORE: 5 * 7 * 11},
    ),
    "addmm of nothing": (
        lambda a, x, w: torch.addmm(a, x, w, beta=0),
        [(5, 11), (5, 7), Y],
        {PTFLOPS: 5 * 7 * 11, FVCORE: 5 * 7 * 11},
    ),
    "vector": (lambda x, v: torch.mv(x, v), [(5, 7), (7,)], {}),
    "broadcast": (lambda a, b: torch.matmul(a, b), [(3, 1, 5, 7), (2, 7, 11)], {PTFLOPS: LINEAR}),
    "convolution": (lambda x, w: F.conv1d(input=x, weight=w), [X, (11, 5, 3)], {FVCORE: 3 * 5 * 11 * 5 * 3}),
    "padding by a word": (lambda x, w: F.conv1d(input=x, weight=w, padding="same"), [X, (11, 5, 3)], {FVCORE: 0}),
    "unbatched convolution": (lambda x, w: F.conv1d(x, w), [(5, 7), (11, 5, 3)], {FVCORE: 5 * 11 * 5 * 3}),
    "two groups": (
        lambda x, w: F.conv1d(x, w, groups=2),
        [(3, 14, 7), (22, 7, 3)],
        {**by_all(3 * 5 * 22 * 7 * 3), PTFLOPS: 0},
    ),
    "transposed convolution": (
        lambda x, w: F.conv_transpose1d(x, w),
        [(3, 7, 5), (7, 11, 3)],
        {**by_all(3 * LINEAR), PTFLOPS: 0},
    ),
    "attention": (attend, [(3, 2, 5, 7), (3, 2, 11, 7)], {DEEPSPEED: 2 * 3 * 2 * 5 * 11 * 7}),
    "layer norm": (lambda x, w: F.layer_norm(x, (7,), weight=w), [X, (7,)], {FVCORE: 5 * ELEMENTS}),
    "layer norm alone": (lambda x: F.layer_norm(input=x, normalized_shape=(7,)), [X], {FVCORE: 4 * ELEMENTS}),
    "group norm": (lambda x, w: F.group_norm(input=x, num_groups=1, weight=w), [X, (5,)], {FVCORE: 5 * ELEMENTS}),
    "instance norm": (lambda x, w: F.instance_norm(input=x, weight=w), [X, (5,)], {FVCORE: 5 * ELEMENTS}),
    "batch norm": (
        lambda x, mean, var, w: F.batch_norm(input=x, running_mean=mean, running_var=var, weight=w),
        [X, (5,), (5,), (5,)],
        {FVCORE: 2 * ELEMENTS},
    ),
    "batch norm alone": (lambda x, mean, var: F.batch_norm(x, mean, var), [X, (5,), (5,)], {FVCORE: ELEMENTS}),
    "elementwise": (lambda x, y: torch.mul(input=x, other=y), [X, (3, 5, 1)], {PTFLOPS: ELEMENTS}),
    # Shapes (3, 5, 7) and (7,) from the left: 7 x 5 x 7.
    "elementwise from the left": (lambda x, y: torch.add(x, y), [X, (7,)], {PTFLOPS: 7 * 5 * 7}),
    "with a number": (lambda x: torch.mul(x, 2), [X], {PTFLOPS: ELEMENTS}),
    "operators on elements": (lambda x: x * x + x, [X], by_all(0)),
    "activation": (lambda x: F.gelu(input=x), [X], {**by_all(0), PTFLOPS: ELEMENTS}),
    "other activations": (lambda x: torch.relu(torch.ops.aten.silu(torch.softmax(x, -1))), [X], by_all(0)),
    "softmax": (lambda x: F.softmax(input=x, dim=-1), [X], {**by_all(0), PTFLOPS: ELEMENTS}),
    "logsumexp": (lambda x: x.logsumexp(-1) + F.log_softmax(x, -1).sum(), [X], {}),
    "pooling": (lambda x: F.max_pool1d(input=x, kernel_size=2), [X], {PTFLOPS: ELEMENTS}),
    "to a size": (lambda x: F.interpolate(input=x, size=11), [X], {PTFLOPS: 3 * 5 * 11}),
    "to a square": (lambda x: F.interpolate(x, 11), [IMAGE], dict.fromkeys((PTFLOPS, FVCORE), 3 * 5 * 11 * 11)),
    "to two sizes": (lambda x: F.interpolate(x, (11, 2)), [IMAGE], {PTFLOPS: 3 * 5 * 11 * 2}),
    "by a scale": (lambda x: F.interpolate(input=x, scale_factor=3), [X], {PTFLOPS: 3 * ELEMENTS}),
    "by a scale each way": (
        lambda x: F.interpolate(input=x, scale_factor=3),
        [IMAGE],
        {PTFLOPS: 3 * 3 * ELEMENTS * 13},
    ),
    "by two scales": (lambda x: F.interpolate(x, None, (3.0, 2.0)), [IMAGE], {PTFLOPS: 6 * ELEMENTS * 13}),
}
MODULES = {
    "biased linear": (
        lambda: nn.Linear(7, 11), [X], {**by_all(LINEAR), PTFLOPS: LINEAR + BIAS, ATEN: LINEAR + BIAS},
    ),
    "called twice": (
        lambda: Calls(lambda m, x: m.a(m.a(x)), a=nn.Linear(7, 7, bias=False)), [X], by_all(2 * SQUARE),
    ),
    # ptflops-pytorch adds a module's sum once for each parent that holds it.
    "shared by two parents": (shared_layer, [X], {**by_all(3 * SQUARE), PTFLOPS: 2 * 3 * SQUARE + 2 * ELEMENTS}),
    "layer norm module": (lambda: nn.LayerNorm(7), [X], {PTFLOPS: ELEMENTS, ATEN: 0, FVCORE: 5 * ELEMENTS, TORCH: 0}),
    # The hook of nn.GELU and the F.gelu that it calls.
    "activation module": (nn.GELU, [X], {**by_all(0), PTFLOPS: 2 * ELEMENTS}),
    "activations": (lambda: nn.Sequential(nn.ReLU(), nn.SiLU(), nn.LeakyReLU(), nn.ELU(), nn.PReLU()), [X], {}),
    "stored references": (stored_references, [(5, 7)], {}),
    "norms": (
        lambda: nn.Sequential(nn.LayerNorm(13), nn.BatchNorm2d(5), nn.GroupNorm(5, 5), nn.InstanceNorm2d(5)),
        [IMAGE],
        {},
    ),
    "plain norms": (lambda: nn.Sequential(nn.LayerNorm(13, elementwise_affine=False), nn.RMSNorm(13)), [IMAGE], {}),
    "poolings": (lambda: nn.Sequential(nn.MaxPool2d(2), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1)), [IMAGE], {}),
    "interpolation": (
        lambda: nn.Sequential(nn.Upsample(scale_factor=2), nn.Upsample(size=(7, 5), mode="bilinear")), [IMAGE], {},
    ),
    "convolutions": (
        lambda: nn.Sequential(nn.Conv2d(4, 6, 3, groups=2), nn.ConvTranspose2d(6, 4, 2, bias=False)),
        [(2, 4, 9, 10)],
        {},
    ),
    "recurrent": (lambda: nn.LSTM(7, 11, num_layers=2, bidirectional=True, batch_first=True), [X], {DEEPSPEED: 0}),
    "projected": (lambda: nn.LSTM(13, 11, proj_size=7), [(5, 2, 13)], {}),
    # ptflops counts 5 x 13 rows
    "unbatched sequence": (lambda: nn.LSTM(13, 11), [(5, 13)], {}),
    "gru": (lambda: nn.GRU(7, 11), [X], {}),
    "cells": (lambda: Calls(lambda m, x: m.b(m.a(x)[0]), a=nn.LSTMCell(7, 11), b=nn.GRUCell(11, 8)), [(5, 7)], {}),
    "non-contiguous": (lambda: Calls(lambda m, x: m.a(x.transpose(0, 1)), a=nn.Linear(7, 11)), [X], {}),
    "function mode": (lambda: Calls(run_in_device_mode, a=nn.Linear(7, 5)), [(5, 7)], {}),
    "inference mode": (lambda: Calls(run_in_inference_mode, a=nn.Linear(7, 11)), [(5, 7)], {}),
    "checkpoint": (lambda: Calls(run_checkpointed, a=nn.Linear(7, 11)), [(5, 7)], {}),
    "forward called directly": (lambda: Calls(lambda m, x: m.a.forward(x), a=nn.Linear(7, 11)), [(5, 7)], {}),
    "encoder": (lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 11), 2, enable_nested_tensor=False),
                [(3, 5, 6)], {}),
    "encoder layer": (lambda: nn.TransformerEncoderLayer(6, 2, 11, batch_first=True, activation="gelu"),
                      [(3, 5, 6)], {TORCH: 0}),
    "transformer": (lambda: nn.Transformer(6, 2, 1, 1, 11, batch_first=True), [(3, 5, 6), (3, 7, 6)], {}),
    "buffer": (
        lambda: Calls(lambda m, x: m.b.copy_(m.a(x)).sum(), a=nn.Linear(7, 7), b=nn.Buffer(torch.zeros(5, 7))),
        [(5, 7)],
        {},
    ),
}  # fmt: skip
MODULES |= {name: (partial(module, function), *rest) for name, (function, *rest) in FUNCTIONS.items()}


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("name", MODULES)
def test_count_is_explained(name, device):
    """The counts in MODULES are those on the CPU; None where the tool's handler takes no such keyword."""
    build, shapes, macs = MODULES[name]
    inputs = [torch.ones(shape, device=device) for shape in shapes]
    cells = read(build().to(device).eval(), inputs, label=name).tools
    assert all(cell.explained for cell in cells), cells
    if device == "cpu":
        given = {cell.counter: cell.macs for cell in cells if cell.counter in macs}
        assert given == {counter: macs[counter] for counter in given} and given.keys() >= macs.keys() - {DEEPSPEED}


matmul = torch.matmul
COMPLEX = [torch.ones(shape, dtype=torch.complex64) for shape in (X, (11, 5, 3))]
CONVOLVED, THREE = 3 * 5 * 11 * 5 * 3, "one of three real products that make a complex one"
EINSUM = "aten::einsum: half of the FLOPs of numpy's own order of contraction, printed with four digits"
ONE_CALL = "its formula sees the shapes of one call, not of what runs for all (vmap)"
FIRST_BY_LAST = "the first operand's elements times the other's last size"
NOT_BY_NAME = "called as an operator or by a stored reference: not patched"
JAGGED = torch.nested.nested_tensor([torch.ones(3, 13), torch.ones(4, 13)], layout=torch.jagged)
CAUSES = [
    (PTFLOPS, lambda x, w: x @ w, [(5, 7), Y], MISSED, -5 * 7 * 11, f"matmul {NOT_BY_NAME}"),
    (PTFLOPS, lambda x, w: matmul(x, w), [(5, 7), Y], MISSED, -5 * 7 * 11, f"matmul {NOT_BY_NAME}"),
    (PTFLOPS, lambda x, w: F.linear(x, w), [X, WEIGHT], MISSED, -LINEAR, "linear is not patched"),
    (PTFLOPS, lambda x: nn.Linear(7, 11)(x), [X], MISSED, -LINEAR, "linear is not patched"),
    (PTFLOPS, LinearSubclass(7, 11), [X], MISSED, -LINEAR, "LinearSubclass is not exactly nn.Linear: no hook"),
    (PTFLOPS, overridden_forward(), [X], TWICE, LINEAR, "patched torch.matmul in Linear"),
    (PTFLOPS, nn.Sequential(overridden_forward()), [X], TWICE, LINEAR, "patched torch.matmul in Linear"),
    (FVCORE, lambda x, w: F.conv1d(x, w, padding="same"), [X, (11, 5, 3)], DIFFERS, -3 * 7 * 11 * 5 * 3,
     "aten::conv1d: a window given as a word"),
    (FVCORE, lambda x, y: torch.baddbmm(x, x, y), [(3, 7, 7), (3, 7, 7)], MISSED, -3 * 7 * 7 * 7,
     "aten::baddbmm has no handle"),
    (FVCORE, lambda x, w: Twice.apply(x, w) + 1, [(5, 7), Y], MISSED, -5 * 7 * 11,
     "hidden in the autograd.Function Twice"),
    (FVCORE, with_unused_linear, [(5, 7), WEIGHT], MISSED, -5 * 7 * 11, "linear is dead code: no output depends on it"),
    (PTFLOPS, lambda x, w: torch.matmul(x, w), [(3, 1, 5, 7), (2, 7, 11)], DIFFERS, LINEAR - 2 * LINEAR,
     "patched torch.matmul: one operand is broadcast"),
    (PTFLOPS, lambda x, w: torch.vmap(lambda row: torch.matmul(row, w))(x), [X, Y], DIFFERS, -2 * 5 * 7 * 11,
     f"patched torch.matmul: {ONE_CALL}"),
    (TORCH, lambda x, w: torch.mm(x, w), [torch.eye(7).to_sparse_coo(), Y], DIFFERS, (7 - 1) * 7 * 11,
     "aten.mm: as if every element were stored"),
    (TORCH, nn.TransformerEncoderLayer(6, 2, 11, batch_first=True), [(3, 5, 6)], MISSED,
     -3 * (5 * 6 * 18 + 2 * 5 * 5 * 6 + 5 * 6 * 6 + 2 * 5 * 6 * 11),
     "aten._transformer_encoder_layer_fwd is not in its table"),
    (PTFLOPS, lambda x: F.gelu(x), [X], ADDED, ELEMENTS, "activation by patched F.gelu"),
    (PTFLOPS, lambda x: F.gelu(x), [JAGGED], ADDED, (3 + 4) * 13, "activation by patched F.gelu"),
    (PTFLOPS, lambda x, v: torch.matmul(x, v), [(5, 7), (7,)], DIFFERS, 5 * 7 * 7 - 5 * 7,
     f"patched torch.matmul: {FIRST_BY_LAST}"),
    (PTFLOPS, Calls(lambda m, x: torch.vmap(m.a)(x), a=nn.Linear(7, 11, bias=False)), [X], DIFFERS, -2 * 5 * 7 * 11,
     f"hook of nn.Linear: {ONE_CALL}"),
    (PTFLOPS, multiply_after_failure, [(5, 7), Y], ADDED, 5 * 7 * 7, "patched torch.mm, a call that failed"),
    (FVCORE, lambda x, w: F.conv1d(x, w), COMPLEX, DIFFERS, 2 * CONVOLVED,
     "aten::conv1d: a complex convolution as three real ones"),
    (TORCH, lambda x, w: F.conv1d(x, w), COMPLEX, DIFFERS, 2 * CONVOLVED, f"aten.convolution: {THREE}"),
    (FVCORE, lambda x, w, b: torch.vmap(F.linear, in_dims=(None, 0, 0))(x, w, b), [(5, 7), (3, 11, 7), (3, 11)],
     DIFFERS, 5 * 7 * 11 - LINEAR, "aten::bmm: one operand is broadcast"),
    # 2 x 13 x 17 x 61 = 26,962, which prints 2.696e+04
    (FVCORE, lambda x, y: torch.einsum("ab,bc->ac", x, y), [(13, 17), (17, 61)], DIFFERS, -1, EINSUM),
    # 2 x 7 x 61 x 17 + 2 x 7 x 17 x 13 = 17,612, which prints 1.761e+04
    (FVCORE, lambda x, y, z: torch.einsum("ab,bc,cd->ad", x, y, z), [(7, 61), (61, 17), (17, 13)], DIFFERS, -1, EINSUM),
    # torch sums d first
    (FVCORE, lambda x, y: torch.einsum("ab,bcd->ac", x, y), [(7, 5), (5, 3, 2)], DIFFERS, 7 * 5 * 3 * (2 - 1), EINSUM),
    (FVCORE, lambda x, y: torch.einsum("ab,ab->ab", x, y), [(17, 61), (17, 61)], ADDED, 519,
     "aten::einsum, where no contraction was dispatched"),
    (DEEPSPEED, lambda x: matmul(x, x.mT), [X], MISSED, -3 * 5 * 7 * 5,
     "matmul called by a stored reference: not patched"),
    (DEEPSPEED, lambda x: torch.einsum("btd,bsd->bts", x, x), [X], MISSED, -3 * 5 * 7 * 5,
     "einsum: FLOPs are noted and no MACs"),
    (DEEPSPEED, nn.LSTM(7, 11, batch_first=True), [X], MISSED, -3 * 5 * 4 * 11 * (7 + 11),
     "the hook of nn.LSTM adds FLOPs and no MACs"),
    (DEEPSPEED, nn.Conv1d(5, 11, 4, padding="same"), [X], DIFFERS, -3 * 5 * 11 * 4,
     "patched F.conv1d: an even window of the same size"),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize(("counter", "function", "inputs", "what", "amount", "name"), CAUSES)
def test_cause_of_difference(counter, function, inputs, what, amount, name):
    if not registry.installed(counter):
        pytest.skip(f"{counter} is not installed")
    made = function if isinstance(function, nn.Module) else module(function)
    inputs = [given if isinstance(given, torch.Tensor) else torch.ones(given) for given in inputs]
    (cell,) = read(made, inputs, counters=[counter], label="cause").tools
    assert [(c.what, c.macs, c.name) for c in cell.explanation.causes] == [(what, amount, name)]


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b, c: torch.matmul(other=b, input=a),
        lambda a, b, c: torch.addmm(mat1=a, mat2=b, input=c),
        lambda a, b, c: torch.addmm(c, mat2=b, mat1=a),
    ],
    ids=["matmul", "addmm", "addmm-in-part"],
)
def test_operands_by_keyword_in_any_order(function):
    tools = [name for name in (PTFLOPS, ATEN, FVCORE, TORCH, DEEPSPEED) if registry.installed(name)]
    inputs = [torch.ones(shape) for shape in ((5, 7), (7, 11), (11,))]
    cells = read(module(function), inputs, counters=tools, label="keywords").tools
    assert {cell.counter: cell.explained for cell in cells} == dict.fromkeys(tools, True)


# under inference_mode the subclass is called with the composite operation, which the counter takes apart by itself
@pytest.mark.parametrize(
    ("counter", "name", "inference"),
    [
        *((PTFLOPS, "hook of nn.Linear", False), (FVCORE, "aten::linear", False)),
        *((ATEN, "aten.mm", False), (TORCH, "aten.mm", False), (TORCH, "aten.linear", True)),
    ],
)
def test_subclass_is_one_call(counter, name, inference):
    """TwoTensor runs each operation on both of its tensors."""
    with torch.inference_mode(inference):
        linear = nn.Linear(7, 11, bias=False)
        weight = linear.weight.detach()
        linear.weight = nn.Parameter(TwoTensor(weight, weight.clone()))
        (cell,) = read(linear, [torch.ones(5, 7)], counters=[counter], label="two").tools
    assert (cell.exact, cell.macs, cell.explained) == (2 * 5 * 7 * 11, 5 * 7 * 11, True)
    assert [cause.name for cause in cell.explanation.causes] == [
        f"{name}: the call of TwoTensor, not the operations that it runs"
    ]


OUTSIDE = {
    FVCORE: "headcount_counters::linear has no handle",
    ATEN: "headcount_counters.linear is not in its table",
    TORCH: "headcount_counters.linear is not in its table",
}


@pytest.mark.parametrize("macs", [5 * 7 * 11, 2 * 5 * 7 * 11])
def test_library_operation_is_explained(macs):
    formulas = {"headcount_counters.linear": lambda event: macs}
    inputs = [torch.ones(5, 7), torch.ones(WEIGHT)]
    cells = read(module(library_linear), inputs, label="library", formulas=formulas).tools
    causes = {cell.counter: [(c.what, c.name, c.macs) for c in cell.explanation.causes] for cell in cells}
    assert all(cell.explained for cell in cells)
    assert {name: causes[name] for name in OUTSIDE} == {name: [(MISSED, why, -macs)] for name, why in OUTSIDE.items()}
    inside = "patched torch.matmul: it sees the product inside headcount_counters.linear"
    assert causes[PTFLOPS] == [(DIFFERS, inside, 5 * 7 * 11 - macs)][: macs != 5 * 7 * 11]


def test_shared_module_counts_per_parent():
    # Three calls of one layer, registered under two parents; the ReLU counts by its hook and by the F.relu in it.
    (cell,) = read(shared_layer(), [torch.ones(X)], label="shared", counters=[PTFLOPS]).tools
    causes = [(cause.what, cause.macs) for cause in cell.explanation.causes]
    assert causes == [(TWICE, 3 * SQUARE), (ADDED, ELEMENTS), (ADDED, ELEMENTS)]


def test_failing_tool_has_reason():
    # fvcore's handle for matmul refuses a vector (jit_handles.py:224), ptflops' hook a call by keyword.
    layer = Calls(lambda m, x: torch.matmul(m.a(input=x), x[0]), a=nn.Linear(7, 7, bias=False))
    cells = {c.counter: c for c in read(layer, [torch.ones(5, 7)], label="by keyword").tools}
    assert cells[FVCORE].reason.startswith("IndexError") and cells[FVCORE].macs is None
    assert cells[PTFLOPS].reason.startswith("IndexError")
    assert (cells[TORCH].macs, cells[TORCH].exact) == (5 * 7 * 7, 5 * 7 * 7 + 5 * 7)
    assert all(cell.explained for cell in cells.values())


def test_prediction_leaves_out_missed_kinds():
    entries = (Entry("a", "linear", {"m": 3, "i": 5, "j": 7}), Entry("a", "scores", {"m": 3, "i": 5, "j": 11}))
    tool = SimpleNamespace(MISSES={"scores"})
    assert predict(tool, Ledger(entries), "meta") == 3 * 5 * 7
    assert additions(tool, Ledger(entries), "meta") == {"scores": -3 * 5 * 11}
