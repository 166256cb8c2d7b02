"""The count of each tool for calls in many forms, and the causes of differences."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from headcount.bench.counters.explain import ADDED, DIFFERS, MISSED, TWICE
from headcount.bench.counters.results import read
from tests.bench.contractions.written import module

X, Y, IMAGE = (3, 5, 7), (7, 11), (3, 5, 7, 13)
ELEMENTS, LINEAR = 3 * 5 * 7, 3 * 5 * 7 * 11
# fvcore's norms: 5 an element with a scale and 4 without, 2 or 1 for a batch norm's kept statistics.
FORMS = {
    "linear": (lambda x, w: F.linear(input=x, weight=w), [X, (11, 7)], {"fvcore": LINEAR}),
    "matmul": (lambda x, w: torch.matmul(input=x, other=w), [X, Y], {"ptflops-pytorch": LINEAR, "fvcore": LINEAR}),
    "mm": (lambda x, w: torch.mm(input=x, mat2=w), [(5, 7), Y], {"ptflops-pytorch": None, "fvcore": 5 * 7 * 11}),
    "bmm": (lambda x, w: torch.bmm(input=x, mat2=w), [X, (3, 7, 11)], {"ptflops-pytorch": None, "fvcore": LINEAR}),
    "addmm": (
        lambda a, x, w: torch.addmm(input=a, mat1=x, mat2=w),
        [(5, 11), (5, 7), Y],
        {"ptflops-pytorch": 5 * 7 * 11 + 5 * 11, "fvcore": 5 * 7 * 11},
    ),
    "addmm of nothing": (
        lambda a, x, w: torch.addmm(a, x, w, beta=0),
        [(5, 11), (5, 7), Y],
        {"ptflops-pytorch": 5 * 7 * 11, "fvcore": 5 * 7 * 11},
    ),
    "convolution": (lambda x, w: F.conv1d(input=x, weight=w), [X, (11, 5, 3)], {"fvcore": 3 * 5 * 11 * 5 * 3}),
    "padding by a word": (lambda x, w: F.conv1d(input=x, weight=w, padding="same"), [X, (11, 5, 3)], {"fvcore": 0}),
    "layer norm": (lambda x, w: F.layer_norm(x, (7,), weight=w), [X, (7,)], {"fvcore": 5 * ELEMENTS}),
    "layer norm alone": (lambda x: F.layer_norm(input=x, normalized_shape=(7,)), [X], {"fvcore": 4 * ELEMENTS}),
    "group norm": (lambda x, w: F.group_norm(input=x, num_groups=1, weight=w), [X, (5,)], {"fvcore": 5 * ELEMENTS}),
    "instance norm": (lambda x, w: F.instance_norm(input=x, weight=w), [X, (5,)], {"fvcore": 5 * ELEMENTS}),
    "batch norm": (
        lambda x, mean, var, w: F.batch_norm(input=x, running_mean=mean, running_var=var, weight=w),
        [X, (5,), (5,), (5,)],
        {"fvcore": 2 * ELEMENTS},
    ),
    "batch norm alone": (lambda x, mean, var: F.batch_norm(x, mean, var), [X, (5,), (5,)], {"fvcore": ELEMENTS}),
    "elementwise": (lambda x, y: torch.mul(input=x, other=y), [X, (3, 5, 1)], {"ptflops-pytorch": ELEMENTS}),
    # Shapes (3, 5, 7) and (7,) from the left: 7 x 5 x 7.
    "elementwise from the left": (lambda x, y: torch.add(x, y), [X, (7,)], {"ptflops-pytorch": 7 * 5 * 7}),
    "with a number": (lambda x: torch.mul(x, 2), [X], {"ptflops-pytorch": ELEMENTS}),
    "activation": (lambda x: F.gelu(input=x), [X], {"ptflops-pytorch": ELEMENTS}),
    "softmax": (lambda x: F.softmax(input=x, dim=-1), [X], {"ptflops-pytorch": ELEMENTS}),
    "pooling": (lambda x: F.max_pool1d(input=x, kernel_size=2), [X], {"ptflops-pytorch": ELEMENTS}),
    "to a size": (lambda x: F.interpolate(input=x, size=11), [X], {"ptflops-pytorch": 3 * 5 * 11}),
    "to a square": (
        lambda x: F.interpolate(x, 11),
        [IMAGE],
        {"ptflops-pytorch": 3 * 5 * 11 * 11, "fvcore": 3 * 5 * 11 * 11},
    ),
    "to two sizes": (lambda x: F.interpolate(x, (11, 2)), [IMAGE], {"ptflops-pytorch": 3 * 5 * 11 * 2}),
    "by a scale": (lambda x: F.interpolate(input=x, scale_factor=3), [X], {"ptflops-pytorch": 3 * ELEMENTS}),
    "by a scale each way": (
        lambda x: F.interpolate(input=x, scale_factor=3),
        [IMAGE],
        {"ptflops-pytorch": 3 * 3 * ELEMENTS * 13},
    ),
    "by two scales": (lambda x: F.interpolate(x, None, (3.0, 2.0)), [IMAGE], {"ptflops-pytorch": 6 * ELEMENTS * 13}),
}


@pytest.mark.parametrize("form", FORMS)
def test_call_form_is_explained(form):
    """None where the tool's own handler takes no such keyword."""
    function, shapes, macs = FORMS[form]
    cells = read(module(function), [torch.ones(shape) for shape in shapes], label=form).counters
    assert {cell.counter: cell.macs for cell in cells if cell.counter in macs} == macs
    assert all(cell.explained for cell in cells), cells


class Mine(nn.Linear):
    """A linear layer that is not exactly one."""


def overridden_forward():
    """A layer whose own forward calls what is patched too."""
    layer = nn.Linear(7, 11, bias=False)
    layer.forward = lambda x: torch.matmul(x, layer.weight.mT)
    return layer


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        return torch.mm(x, w)


def tried(x, w):
    try:
        return torch.mm(x, w.mT)
    except RuntimeError:
        return torch.mm(x, w)


def unused(x, w):
    F.linear(x, w)
    return x + 1


matmul = torch.matmul
COMPLEX = [torch.ones(shape, dtype=torch.complex64) for shape in (X, (11, 5, 3))]
CONVOLVED, THREE = 3 * 5 * 11 * 5 * 3, "one of three real products that make a complex one"
OWN_ORDER = "numpy's own order of contraction, printed with four digits"
NOT_BY_NAME = "called as an operator or by a kept reference: not patched"
CAUSES = [
    ("ptflops-pytorch", lambda x, w: x @ w, [(5, 7), Y], MISSED, -5 * 7 * 11, f"matmul {NOT_BY_NAME}"),
    ("ptflops-pytorch", lambda x, w: matmul(x, w), [(5, 7), Y], MISSED, -5 * 7 * 11, f"matmul {NOT_BY_NAME}"),
    ("ptflops-pytorch", lambda x, w: F.linear(x, w), [X, (11, 7)], MISSED, -LINEAR, "linear is not patched"),
    ("ptflops-pytorch", lambda x: nn.Linear(7, 11)(x), [X], MISSED, -LINEAR, "linear is not patched"),
    ("ptflops-pytorch", Mine(7, 11), [X], MISSED, -LINEAR, "Mine is not exactly nn.Linear: no hook"),
    ("ptflops-pytorch", overridden_forward(), [X], TWICE, LINEAR, "patched torch.matmul in Linear"),
    ("ptflops-pytorch", nn.Sequential(overridden_forward()), [X], TWICE, LINEAR, "patched torch.matmul in Linear"),
    ("fvcore", lambda x, w: F.conv1d(x, w, padding="same"), [X, (11, 5, 3)], DIFFERS, -3 * 7 * 11 * 5 * 3,
     "aten::conv1d: a window given as a word"),
    ("fvcore", lambda x, y: torch.baddbmm(x, x, y), [(3, 7, 7), (3, 7, 7)], MISSED, -3 * 7 * 7 * 7,
     "aten::baddbmm has no handle"),
    ("fvcore", lambda x, w: Twice.apply(x, w) + 1, [(5, 7), Y], MISSED, -5 * 7 * 11,
     "hidden in the autograd.Function Twice"),
    ("fvcore", unused, [(5, 7), (11, 7)], MISSED, -5 * 7 * 11, "linear is dead code: no output depends on it"),
    ("ptflops-pytorch", lambda x, w: torch.matmul(x, w), [(3, 1, 5, 7), (2, 7, 11)], DIFFERS, LINEAR - 2 * LINEAR,
     "patched torch.matmul: one operand is broadcast"),
    ("ptflops-pytorch", lambda x, w: torch.vmap(lambda row: torch.matmul(row, w))(x), [X, Y], DIFFERS, -2 * 5 * 7 * 11,
     "patched torch.matmul: its formula sees the shapes of one call, not of what runs for all (vmap)"),
    ("torch", lambda x, w: torch.mm(x, w), [torch.eye(7).to_sparse_coo(), Y], DIFFERS, (7 - 1) * 7 * 11,
     "aten.mm: as if every element were stored"),
    ("ptflops-pytorch", lambda x: F.gelu(x), [X], ADDED, ELEMENTS, "activation by patched F.gelu"),
    ("ptflops-pytorch", tried, [(5, 7), Y], ADDED, 5 * 7 * 7, "patched torch.mm, a call that failed"),
    ("fvcore", lambda x, w: F.conv1d(x, w), COMPLEX, DIFFERS, 2 * CONVOLVED,
     "aten::conv1d: a complex convolution as three real ones"),
    ("torch", lambda x, w: F.conv1d(x, w), COMPLEX, DIFFERS, 2 * CONVOLVED, f"aten.convolution: {THREE}"),
    # 2 x 13 x 17 x 61 = 26,962, which prints 2.696e+04
    ("fvcore", lambda x, y: torch.einsum("ab,bc->ac", x, y), [(13, 17), (17, 61)], DIFFERS, -1,
     "aten::einsum: numpy prints four digits"),
    # 2 x 7 x 61 x 17 + 2 x 7 x 17 x 13 = 17,612, which prints 1.761e+04
    ("fvcore", lambda x, y, z: torch.einsum("ab,bc,cd->ad", x, y, z), [(7, 61), (61, 17), (17, 13)], DIFFERS, -1,
     f"aten::einsum: {OWN_ORDER}"),
    ("fvcore", lambda x, y: torch.einsum("ab,ab->ab", x, y), [(17, 61), (17, 61)], ADDED, 519,
     "aten::einsum, where no contraction was dispatched"),
]  # fmt: skip


@pytest.mark.parametrize(("counter", "function", "inputs", "what", "amount", "name"), CAUSES)
def test_cause_of_difference(counter, function, inputs, what, amount, name):
    made = function if isinstance(function, nn.Module) else module(function)
    inputs = [given if isinstance(given, torch.Tensor) else torch.ones(given) for given in inputs]
    (cell,) = read(made, inputs, counters=[counter], label="cause").counters
    assert [(c.what, c.amount, c.name) for c in cell.explanation.causes] == [(what, amount, name)]
