"""A recorded run: what is an event, where it stands, and that recording leaves nothing behind."""

import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import _SingleLevelFunction

from headcount.bench.count import count_macs
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


def test_an_operation_stands_in_its_call_and_its_module():
    trace = record(Model(), (torch.ones(3, 7, 5),))
    first, second = events(trace, OPERATION, "addmm")
    assert (first.path, second.path) == ("blocks.0", "blocks.1")
    assert [(e.what, e.name) for e in trace.around(second)] == [
        (FUNCTION, "linear"),
        (MODULE, "Linear"),
        (MODULE, "Model"),
    ]
    assert first.args[1].shape == (21, 5)


def test_operators_are_calls_too():
    trace = record(Model(), (torch.ones(3, 7, 5),))
    (call,) = events(trace, FUNCTION, "matmul") + events(trace, FUNCTION, "__matmul__")
    assert [e.name for e in trace.events if e.what == OPERATION and call in trace.around(e)].count("bmm") == 1


def test_named_calls_are_those_through_the_name():
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


def test_on_meta_a_biased_linear_calls_torch_mm_inside_addmm():
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
def test_operations_inside_an_autograd_function_say_so(function, kept):
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


def test_what_a_kept_apply_runs_is_counted_all_the_same():
    for apply in KEPT.values():
        assert count_macs(module(lambda x, apply=apply: apply(x)), torch.ones(5, 5), backward=True).macs == 3 * 5**3


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


class Repeated(torch.autograd.Function):
    times = 1

    @classmethod
    def forward(cls, ctx, x):
        for _ in range(cls.times):
            x = torch.mm(x, x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Thrice(Repeated):
    times = 3


class Outer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return Squared.forward(ctx, SetUp.apply(x))

    @staticmethod
    def backward(ctx, gradient):
        return gradient


@pytest.mark.parametrize(
    "function, calls, products",
    [
        (lambda x: Named.apply(x), ["Named"], 1),
        (lambda x: Defaults.apply(x), ["Defaults"], 1),
        (lambda x: Defaults.apply(x, 3.0), ["Defaults"], 1),
        (lambda x: Thrice.apply(x), ["Thrice"], 3),
        (lambda x: Outer.apply(x), ["Outer", "SetUp"], 2),
        (lambda x: SetUp.forward(x), [], 1),
    ],
)
def test_a_function_is_called_as_it_is_written_and_by_its_own_name(function, calls, products):
    trace = record(module(lambda x: function(x)), (torch.ones(5, 5),), backward=True)
    found = [event.name for event in trace.events if event.what == AUTOGRAD]
    assert found == calls
    assert len([event for event in events(trace, OPERATION, "mm") if not event.backward]) == products


def test_an_apply_that_is_kept_during_a_recording_sees_later_ones_and_nothing_between():
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


def test_backward_operations_belong_to_the_module_of_their_forward():
    trace = record(Model(), (torch.ones(3, 7, 5),), backward=True)
    paths = [event.path for event in events(trace, OPERATION, "mm") if event.backward]
    assert paths == ["blocks.1", "blocks.1", "blocks.0", "blocks.0"]


def test_views_share_storage_and_keep_their_source():
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
def test_recording_leaves_nothing_behind(fails):
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


@pytest.mark.parametrize(
    ("lazy", "where"), [(nn.LazyLinear(3), "the model"), (nn.Sequential(nn.ReLU(), nn.LazyLinear(3)), "1")]
)
def test_a_part_without_shapes_is_named_where_it_stands(lazy, where):
    said = f"^LazyLinear at {where} has no shapes before it has run: call the module once$"
    with pytest.raises(ValueError, match=said):
        record(lazy, (torch.ones(2, 5),))


def test_the_fast_path_of_torchs_attention_is_recorded_as_it_runs():
    attention = nn.MultiheadAttention(12, 2, batch_first=True)
    x = torch.ones(2, 3, 12)
    trace = record(attention, (x, x, x), {"need_weights": False})
    assert [e.name for e in trace.operations()] == ["_native_multi_head_attention"]


def test_a_fresh_copy_has_buffers_of_its_own_and_the_very_parameters():
    """A model of gigabytes is not in memory twice, and a gradient is of the parameters that its user has."""
    norm = nn.BatchNorm1d(5)
    copied = fresh(nn.Sequential(norm, norm))
    assert copied[0] is copied[1] is not norm
    assert copied[0].weight is norm.weight and copied[0].bias is norm.bias
    copied[0].running_mean += 7
    assert norm.running_mean.tolist() == [0] * 5


def test_what_cannot_be_copied_is_run_itself():
    holding = nn.Linear(3, 5)
    holding.lock = threading.Lock()
    assert fresh(holding) is holding
