"""Forward and backward of every formulation, against the closed form and the gradients derived from it."""

import re
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from headcount.bench.counting.run import count_contractions
from headcount.bench.formulations.catalog import FORMULATIONS, formulation
from headcount.bench.trace.record import record
from headcount.formulas.backward import backward
from headcount.formulas.ledger import MAC_KINDS
from tests.bench.contractions.function_modules import Calls, module

# FlexAttention has no backward on the CPU and does not run on meta; a mask loop needs values.
UNSUPPORTED = {(name, device) for name in ("mha-flex", "moa-flex") for device in ("cpu", "meta")}
UNSUPPORTED |= {("moa-mask-loop", "meta")}
FUSED = ("mha-fused", "mha-fused-gqa", "mha-torch", "mha-torch-self", "moa-fused", "moa-fused-gqa")
CASES = [(s.name, d) for s in FORMULATIONS for d in ("cpu", "meta") if (s.name, d) not in UNSUPPORTED]

FRACTIONAL_POOL = partial(F.fractional_max_pool2d, kernel_size=2, output_size=3)


def by_kind(ledger):
    """Return MACs by kind; a trace cannot always tell expert layers and convolutions from linear layers."""
    out = {}
    for entry in ledger.select(lambda entry: entry.kind in MAC_KINDS):
        kind = re.sub("^(expert_linear|conv)(?=_|$)", "linear", entry.kind)
        out[kind] = out.get(kind, 0) + entry.macs
    return out


@pytest.mark.parametrize(("name", "device"), CASES)
def test_backward_matches_closed_form(name, device):
    model, inputs = formulation(name).build(device)
    counted = count_contractions(record(model, tuple(inputs.values()), backward=True))
    exact = formulation(name).exact
    # fused attention stores no scores
    recompute = (lambda entry: entry.kind == "scores") if name in FUSED else None
    expected = exact + backward(exact, recompute=recompute)
    assert by_kind(counted.ledger) == by_kind(expected)
    assert counted.macs == expected.macs
    # a product with every expert proves no routing
    active = None if name == "moa-dense" else exact.active_params
    assert name.startswith("vocabulary") or counted.active_params == active


@pytest.mark.parametrize("function", [partial(F.interpolate, scale_factor=2, mode="nearest-exact"), FRACTIONAL_POOL])
def test_gradient_of_resampling_holds_no_contraction(function):
    count = count_contractions(record(module(function), (torch.ones(2, 3, 7, 7),), backward=True))
    assert any(line.operation.endswith("_backward") for line in count.audit) and count.macs == 0


def test_no_gradient_for_frozen_and_integer():
    model = nn.Sequential(nn.Embedding(11, 5), nn.Linear(5, 7), nn.Linear(7, 3))
    model[2].weight.requires_grad_(False)
    ledger = count_contractions(record(model, (torch.zeros(13, dtype=torch.int64),), backward=True)).ledger
    assert ledger.group(lambda entry: (entry.path, entry.kind)) == {
        ("1", "linear"): 13 * 5 * 7,
        ("2", "linear"): 13 * 7 * 3,
        ("2", "linear_dx"): 13 * 7 * 3,
        ("1", "linear_dx"): 13 * 5 * 7,
        ("1", "linear_dw"): 13 * 5 * 7,
    }


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_is_recomputed(reentrant):
    def run(m, x):
        return torch.utils.checkpoint.checkpoint(m.inner, x, use_reentrant=reentrant)

    block = Calls(run, inner=nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3)))
    ledger = count_contractions(record(block, (torch.ones(13, 5),), backward=True)).ledger
    first, second = 13 * 5 * 7, 13 * 7 * 3
    again = {("inner.0", "linear_recompute"): first}
    if reentrant:
        # non-reentrant recomputation stops at the second layer's input: backward needs no more
        again["inner.1", "linear_recompute"] = second
    forward_and_gradients = {
        (path, f"linear{part}"): size
        for path, size in (("inner.0", first), ("inner.1", second))
        for part in ("", "_dx", "_dw")
    }
    assert ledger.group(lambda entry: (entry.path, entry.kind)) == forward_and_gradients | again


class Penalty(nn.Module):
    """A gradient penalty: the sum of squares of the input gradients."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, *inputs):
        varied = [x.requires_grad_() for x in inputs if x.dtype not in (torch.int64, torch.bool)]
        slopes = torch.autograd.grad(self.layer(*inputs).abs().square().sum(), varied, create_graph=True)
        return sum(slope.abs().square().sum() for slope in slopes)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(
    ("layer", "shape", "macs"),
    [
        (lambda **on: nn.Linear(5, 7, bias=False, **on), (3, 5), 3 * 5 * 7),
        (lambda **on: nn.Conv1d(5, 7, 3, padding=1, bias=False, **on), (2, 5, 11), 2 * 11 * 5 * 3 * 7),
        (lambda **on: nn.Conv2d(4, 6, 3, groups=2, bias=False, **on), (2, 4, 7, 7), 2 * 5 * 5 * 2 * 9 * 6),
        (lambda **on: nn.ConvTranspose1d(5, 7, 3, bias=False, **on), (2, 5, 11), 2 * 11 * 5 * 3 * 7),
    ],
)
def test_second_derivative_is_six_forwards(layer, shape, macs, device):
    """The forward pass and its gradient, and two gradients of each."""
    trace = record(Penalty(layer(device=device)), (torch.zeros(shape, device=device),), backward=True)
    assert count_contractions(trace).macs == 6 * macs


TWICE = ["mha-matmul", "mha-einsum", "mha-torch-weights", "mha-conv", "moa-bmm", "moa-grouped", "moa-dense"]


@pytest.mark.parametrize("name", TWICE)
def test_gradient_penalty_of_attention(name):
    """Both operands of scores depend on the input: 9 products instead of 6."""
    layer, inputs = formulation(name).build("cpu")
    forward = count_contractions(record(layer, tuple(inputs.values()))).by_kind()
    counted = count_contractions(record(Penalty(layer), tuple(inputs.values()), backward=True))
    times = {kind: 9 if kind in ("scores", "values") else 6 for kind in forward}
    assert counted.macs == sum(times[kind] * macs for kind, macs in forward.items())
    for kind in forward.keys() - {"scores", "values"}:
        assert counted.by_kind()[f"{kind}_dx"] == 3 * forward[kind]
        assert counted.by_kind()[f"{kind}_dw"] == 2 * forward[kind]


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_bilinear_forward_and_backward(device):
    """The gradient of y multiplies x by w again, and sums its product with the output's gradient over outputs."""
    n, i, j, o = 7, 5, 3, 11
    inputs = [torch.ones(n, width, device=device, requires_grad=True) for width in (i, j)]
    found = count_contractions(record(nn.Bilinear(i, j, o, device=device), inputs, backward=True)).by_kind()
    assert {kind: macs for kind, macs in found.items() if macs} == {
        **dict.fromkeys(("linear", "linear_dx", "linear_dw", "linear_recompute"), n * o * i * j),
        **dict.fromkeys(("contraction", "contraction_dx"), n * o * j),
    }


def test_abs_gradient_is_supported():
    def absolute(x, w):
        (slope,) = torch.autograd.grad((x @ w).abs().sum(), x.requires_grad_(), create_graph=True)
        return slope.abs()

    inputs = torch.ones(3, 5), nn.Parameter(torch.ones(5, 7))
    assert count_contractions(record(module(absolute), inputs, backward=True)).macs == 6 * 3 * 5 * 7
