"""A recorded run: its events and their modules, and that recording restores all state."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import _SingleLevelFunction

from headcount.bench.trace.events import AUTOGRAD, FUNCTION, MODULE, NAMED, OPERATION
from headcount.bench.trace.record import fresh, record
from tests.bench.contractions.written import module

NAMES = ("torch.mm", "torch.nn.functional.softmax", "torch.Tensor.matmul")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(5, 5), nn.Linear(5, 5)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return F.softmax(x @ x.transpose(-1, -2), -1)


def events(trace, what, name):
    return [event for event in trace.events if event.what == what and event.name == name]


def test_operation_has_module_and_call():
    trace = record(Model(), (torch.ones(3, 7, 5),))
    first, second = events(trace, OPERATION, "addmm")
    assert (first.path, second.path) == ("blocks.0", "blocks.1")
    assert [(e.what, e.name) for e in trace.around(second)] == [
        (FUNCTION, "linear"),
        (MODULE, "Linear"),
        (MODULE, "Model"),
    ]
    assert first.args[1].shape == (21, 5)


def test_named_calls_go_through_the_name():
    class Captured(nn.Module):
        def __init__(self):
            super().__init__()
            self.softmax = F.softmax

        def forward(self, x):
            return self.softmax(x, -1)

    assert len(events(record(Model(), (torch.ones(3, 7, 5),), names=NAMES), NAMED, "torch.nn.functional.softmax")) == 1
    captured = record(Captured(), (torch.ones(3),), names=NAMES)
    assert not events(captured, NAMED, "torch.nn.functional.softmax")
    assert events(captured, FUNCTION, "softmax")


def test_meta_addmm_calls_torch_mm():
    trace = record(nn.Linear(5, 7, device="meta"), (torch.ones(3, 5, device="meta"),), names=NAMES)
    (inner,) = events(trace, NAMED, "torch.mm")
    assert next(trace.around(inner)).name == "addmm"


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.mm(x, x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient @ x.T + x.T @ gradient


class SetUp(torch.autograd.Function):
    """The same in two parts."""

    @staticmethod
    def forward(x):
        return torch.mm(x, x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    backward = Squared.backward


class Named(Squared):
    """Nothing of its own."""


KEPT = {function: function.apply for function in (Squared, SetUp, Named)}
C_S_OWN = "from torch 2.14 on an apply that was kept is C's own, and nothing of Python's is called that could be seen"


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("function", KEPT)
def test_operations_inside_autograd_function(function, kept):
    if kept and torch.__version__ >= (2, 14):
        pytest.skip(C_S_OWN)

    class Model(nn.Module):
        def forward(self, x):
            return KEPT[function](x) if kept else function.apply(x)

    trace = record(Model(), (torch.ones(5, 5),), backward=True)
    (call,) = (event for event in trace.events if event.what == AUTOGRAD)
    assert call.name == function.__name__ and [fact.shape for fact in call.args] == [(5, 5)]
    forward, *backward = events(trace, OPERATION, "mm")
    assert trace.inside(forward, AUTOGRAD) and not forward.backward
    assert [event.forward for event in backward] == [call.index, call.index]


class Defaults(torch.autograd.Function):
    @staticmethod
    def forward(x, scale=2.0):
        return torch.mm(x, x) * scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.x, ctx.scale = inputs

    @staticmethod
    def backward(ctx, gradient):
        return gradient @ ctx.x.T * ctx.scale, None


@pytest.mark.parametrize(
    "function, calls, products",
    [
        (lambda x: Named.apply(x), ["Named"], 1),
        (lambda x: Defaults.apply(x), ["Defaults"], 1),
        (lambda x: Defaults.apply(x, 3.0), ["Defaults"], 1),
        (lambda x: SetUp.forward(x), [], 1),
    ],
)
def test_autograd_function_forms(function, calls, products):
    trace = record(module(lambda x: function(x)), (torch.ones(5, 5),), backward=True)
    found = [event.name for event in trace.events if event.what == AUTOGRAD]
    assert found == calls
    assert len([event for event in events(trace, OPERATION, "mm") if not event.backward]) == products


def test_stored_apply_is_recorded_only_while_recording():
    kept = []

    def restore_names(x):
        kept[:] = kept or [Squared.apply]
        return kept[0](x)

    first = record(module(restore_names), (torch.ones(5, 5),))
    length = len(first.events)
    kept[0](torch.ones(5, 5))
    second = record(module(restore_names), (torch.ones(5, 5),))
    assert len(first.events) == length == len(second.events)
    assert [event.name for event in second.events if event.what == AUTOGRAD] == ["Squared"]


def test_backward_operations_have_forward_module():
    trace = record(Model(), (torch.ones(3, 7, 5),), backward=True)
    paths = [event.path for event in events(trace, OPERATION, "mm") if event.backward]
    assert paths == ["blocks.1", "blocks.1", "blocks.0", "blocks.0"]


def test_views_share_storage_and_source():
    class Views(nn.Module):
        def forward(self, x):
            y = x + 1
            y.view(-1)[2:].mul_(3)
            return y.T

    trace = record(Views(), (torch.ones(5, 5),))
    (added,) = events(trace, OPERATION, "add")
    (scaled,) = events(trace, OPERATION, "mul_")
    assert scaled.args[0].storage == added.out.storage and scaled.args[0].source == added.index
    assert trace.out[0].source == scaled.index and not trace.out[0].contiguous


@pytest.mark.parametrize("fails", [False, True])
def test_recording_restores_state(fails):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x):
            y = self.linear(x)
            if fails:
                raise KeyError("inside")
            return y

    model = Model().train()
    model.linear.eval()
    owners = (
        *(torch, F, torch.Tensor, nn.Module, _SingleLevelFunction, torch.autograd.Function, Squared, SetUp),
        *(torch.functional, torch._tensor, torch.overrides),
    )
    before = [dict(vars(owner)) for owner in owners]
    state = torch.random.get_rng_state()
    x = torch.ones(3, requires_grad=True)
    if fails:
        with pytest.raises(KeyError, match="inside"):
            record(model, (x,), names=NAMES, backward=True)
    else:
        record(model, (x,), names=NAMES, backward=True)
    assert [dict(vars(owner)) for owner in owners] == before
    assert (model.training, model.linear.training) == (True, False)
    assert x.grad is None and model.linear.weight.grad is None
    assert torch.is_grad_enabled() and torch.equal(torch.random.get_rng_state(), state)
    assert torch.overrides._get_current_function_mode() is None
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None


def test_fresh_copies_buffers_and_shares_parameters():
    """A model of gigabytes is not in memory twice, and a gradient is of the parameters that its user has."""
    norm = nn.BatchNorm1d(5)
    copied = fresh(nn.Sequential(norm, norm))
    assert copied[0] is copied[1] is not norm
    assert copied[0].weight is norm.weight and copied[0].bias is norm.bias
    copied[0].running_mean += 7
    assert norm.running_mean.tolist() == [0] * 5
