"""A count changes nothing of its caller's: one list of invariants, held by modules of many kinds."""

import concurrent.futures
import ctypes
import functools
import gc
import os
import queue
import random
import signal
import sys
import threading
import warnings
import weakref
from collections.abc import Iterator

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrize, prune, spectral_norm

from headcount.bench.api.count import count_macs
from headcount.bench.contractions.classify import UnsupportedError
from tests.bench.contractions.function_modules import Calls, module

N, D = 4, 6
X = torch.ones(N, D)


def linear() -> nn.Linear:
    return nn.Linear(D, D)


def with_attribute(**attributes):
    out = nn.Sequential(linear(), nn.BatchNorm1d(D))
    vars(out).update(attributes)
    return out


def with_hooks():
    out = nn.Sequential(linear(), nn.ReLU())
    out.register_forward_hook(lambda _, args, result: result + 1)
    out[0].register_forward_pre_hook(lambda _, args: (args[0] + 1,))
    out[0].register_full_backward_hook(lambda *_: None)
    return out


def hooked_parameter(register):
    """Return a module and the calls that the hook noted, which stay none."""
    out, calls = linear(), []
    register(out, lambda *values: calls.append(values))
    out.calls = calls
    return out


def accumulation_hook(out, note):
    # kept alive, as by a reducer of torch.distributed
    out.node = out.weight.view_as(out.weight).grad_fn.next_functions[0][0]
    out.node.register_hook(note)


def optimiser_in_hook():
    """Return a module with gradients, and a hook that steps an optimiser of its closure."""
    out = with_gradients()
    optimiser = torch.optim.SGD(out.parameters(), lr=1.0, momentum=0.9)
    out.register_full_backward_hook(lambda *_: (optimiser.step(), optimiser.zero_grad())[1])
    out.register_forward_hook(lambda *_: optimiser.step())
    out.state = optimiser.state
    return out


class Ending(nn.Linear):
    """A module that frees something when it ends."""

    def __init__(self):
        super().__init__(D, D)
        self.calls = []

    def __del__(self):
        self.calls.append("end")


def frozen():
    out = nn.Sequential(linear(), linear())
    out[0].requires_grad_(False)
    return out


def with_gradients():
    out = linear()
    out(X).sum().backward()
    return out


def tied():
    out = nn.Sequential(linear(), linear())
    out[1].weight = out[0].weight
    return out


def same_memory():
    out = nn.Sequential(linear(), linear())
    out[1].weight = nn.Parameter(out[0].weight.detach())
    return out


def mixed_modes():
    out = nn.Sequential(linear(), nn.Dropout(), nn.BatchNorm1d(D))
    out[1].eval()
    return out


def materialised():
    out = nn.Sequential(nn.LazyLinear(D), nn.LazyBatchNorm1d())
    out(X)
    return out


def parametrized():
    out = linear()
    parametrize.register_parametrization(out, "weight", nn.Tanh())
    return out


def pruned():
    return prune.l1_unstructured(linear(), "weight", 0.5)


class Scaled(nn.Parameter):
    """A subclass of Parameter with an attribute."""


def subclass_parameter():
    out = linear()
    out.weight = Scaled(out.weight.detach())
    out.weight.scale = 2
    return out


def write_parameter(self, x):
    with torch.no_grad():
        self.linear.weight.mul_(0.5)
        self.linear.weight.view(-1)[1:].add_(1)
        F.embedding(torch.zeros(1, dtype=torch.long), self.linear.weight, max_norm=0.1)
    return self.linear(x)


def write_input(self, x):
    with torch.no_grad():
        x.detach().add_(1)
        x.detach().view(-1)[2:].relu_()
        x.detach().numpy()[0] = 7
    return self.linear(x)


def write_buffer(self, x):
    self.norm.running_mean.add_(1)
    self.norm.running_var = self.norm.running_var + 1
    return self.norm(self.linear(x))


def draw(self, x):
    noise = torch.rand(D) + random.random() + float(numpy.random.rand())
    return self.linear(F.dropout(x, training=True) + noise.to(x.dtype))


def skip_by_random(self, x):
    return self.linear(x) if random.random() < 0.5 else x


def write(change):
    """Return a forward that changes the memory of a weight in a way that torch does not see."""

    def forward(self, x):
        change(self.linear.weight.detach())
        return self.linear(x)

    return forward


def write_by_address(weight):
    ctypes.memset(weight.data_ptr(), 0, 8)


def write_without_modes(self, x):
    with torch.utils._python_dispatch._disable_current_modes():
        self.linear.weight.data.mul_(2)
    return self.linear(x)


def keep_state(self, x):
    self.steps, self.state = self.steps + 1, self.linear(x)
    self.seen.append(self.state)
    return self.state


def set_modes(self, x):
    with torch.enable_grad(), torch.autocast("cpu", torch.bfloat16):
        return self.linear(x)


def calls(function, **attributes):
    return Calls(function, linear=linear(), **attributes)


OUTER = nn.Sequential(linear(), nn.BatchNorm1d(D))


def call_global(x):
    return OUTER(x)


def call_closure():
    inner = nn.Sequential(linear(), nn.BatchNorm1d(D))
    return module(lambda x: inner(x))


KINDS = {
    "linear": linear,
    "frozen": frozen,
    "gradients": with_gradients,
    "tied": tied,
    "same-memory": same_memory,
    "mixed-modes": mixed_modes,
    "materialised": materialised,
    "module-hooks": with_hooks,
    "tensor-hook": lambda: hooked_parameter(lambda out, note: out.weight.register_hook(note)),
    "post-hook": lambda: hooked_parameter(lambda out, note: out.weight.register_post_accumulate_grad_hook(note)),
    "accumulation-hook": lambda: hooked_parameter(accumulation_hook),
    "optimiser-in-hook": optimiser_in_hook,
    "end-of-life": Ending,
    "parametrized": parametrized,
    "spectral-norm": lambda: spectral_norm(linear()),
    "pruned": pruned,
    "locks-in-lists": lambda: with_attribute(held=[{"lock": threading.Lock()}]),
    "generator": lambda: with_attribute(rows=(i for i in range(3))),
    "graph-tensor": lambda: with_attribute(cached=linear()(X)),
    "unregistered": lambda: with_attribute(parts=[linear()]),
    "subclass-parameter": subclass_parameter,
    "script-inside": lambda: nn.Sequential(torch.jit.script(linear()), linear()),
    "compiled": lambda: torch.compile(linear(), backend="eager"),
    "lstm": lambda: nn.LSTM(D, D),
    "checkpoint": lambda: calls(lambda self, x: torch.utils.checkpoint.checkpoint(self.linear, x, use_reentrant=False)),
    "writes-parameter": lambda: calls(write_parameter),
    "writes-by-address": lambda: calls(write(write_by_address)),
    "writes-without-modes": lambda: calls(write_without_modes),
    "writes-input": lambda: calls(write_input),
    "writes-buffer": lambda: calls(write_buffer, norm=nn.BatchNorm1d(D)),
    "writes-in-place": lambda: calls(lambda self, x: self.linear(F.relu(x.clone(), inplace=True)).add_(1)),
    "keeps-state": lambda: calls(keep_state, steps=0, state=None, seen=[]),
    "draws": lambda: calls(draw),
    "layer-drop": lambda: calls(skip_by_random),
    "sets-modes": lambda: calls(set_modes),
    "closure": call_closure,
    "global": lambda: module(call_global),
    "method": lambda: module(OUTER.forward),
}


def tensors(net):
    """Return the parameters, buffers and tensors in attributes of a module and of OUTER."""
    parts = [*net.modules(), *OUTER.modules()]
    found = [*net.parameters(), *net.buffers(), *OUTER.parameters(), *OUTER.buffers()]
    for part in parts:
        for value in vars(part).values():
            found += [value] if isinstance(value, torch.Tensor) else []
            if isinstance(value, list):
                found += [p for one in value if isinstance(one, nn.Module) for p in one.parameters()]
    return found


def state_of_tensor(tensor):
    gradient = tensor.grad if tensor.is_leaf else None
    memory = tensor.untyped_storage().data_ptr(), tensor.stride(), tensor.tolist(), tensor._version
    return *memory, tensor.requires_grad, id(gradient), None if gradient is None else gradient.tolist()


def state_of_tensors(found):
    return list(map(state_of_tensor, found))


def state_of_module(net):
    """Return the attributes of each module: hooks, flags, and the identity of all that it holds."""
    found = []
    for part in net.modules():
        if not isinstance(part, torch.jit.ScriptModule):
            for name, value in vars(part).items():
                found.append((name, id(value), list(map(id, value.values())) if isinstance(value, dict) else ()))
        found.append((type(part), getattr(part, "training", None)))
    return found


def state_of_process():
    return {
        "generators": (torch.get_rng_state().tolist(), random.getstate(), numpy.random.get_state()[1].tolist()),
        "modes": (
            torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype(),
            torch.are_deterministic_algorithms_enabled(), torch.is_autocast_enabled("cpu"),
            torch.backends.mkldnn.enabled, torch._C._get_mkldnn_enabled(), torch.get_num_threads(),
            torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack(),
        ),
        "warnings": list(warnings.filters),
        "threads": threading.enumerate(),
        "collector": (gc.isenabled(), gc.get_threshold()),
        "signals": [signal.getsignal(number) for number in signal.valid_signals()],
        "environment": dict(os.environ),
        "modules": set(sys.modules),
        "torch": (nn.Module.__call__, nn.Module.__init__, torch.overrides.has_torch_function, threading.Thread.start),
    }  # fmt: skip


def seed():
    for set_seed in (random.seed, numpy.random.seed, torch.manual_seed):
        set_seed(3)


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("kind", KINDS)
def test_count_changes_nothing(kind, backward):
    """Generators alone advance: as by one call of the forward pass."""
    net = KINDS[kind]()
    x = torch.ones(N, D, dtype=next(net.parameters(), X).dtype)

    def count():
        seed()
        return count_macs(net, x, backward=backward, allow_unsupported=True).macs

    before = state_of_tensors([x, *tensors(net)]), state_of_module(net)
    first = count()
    process = state_of_process()
    assert count() == first > 0
    assert (state_of_tensors([x, *tensors(net)]), state_of_module(net)) == before
    assert state_of_process() == process
    assert getattr(net, "calls", []) == []
    if kind in ("draws", "layer-drop"):
        seed()
        net(x)
    assert state_of_process()["generators"] == process["generators"]


@pytest.mark.parametrize("kind", ["writes-parameter", "writes-input", "writes-buffer", "pruned"])
def test_backward_begun_before_a_count_works(kind):
    net, x = KINDS[kind](), torch.ones(N, D)
    loss = (x.requires_grad_().exp() @ (next(net.parameters()) ** 2)).sum()
    count_macs(net, x, training=True, allow_unsupported=True)
    loss.backward()


def test_collector_has_its_frozen_objects():
    gc.freeze()
    before = gc.get_freeze_count()
    count_macs(linear(), torch.ones(N, D))
    assert gc.get_freeze_count() == before


def test_result_keeps_no_tensor():
    net, x = nn.Sequential(linear(), nn.BatchNorm1d(D)), torch.ones(N, D)
    kept = [weakref.ref(one) for one in (net, *net.modules(), *net.parameters(), *net.buffers(), x)]
    count = count_macs(net, x, backward=True)
    del net, x
    assert [one() for one in kept] == [None] * len(kept) and count.to_dataframe().macs.sum() == count.macs


def test_pass_that_fails_changes_nothing():
    def fail(self, x):
        torch.set_default_dtype(torch.float64)
        write_parameter(self, x)
        raise KeyError("inside")

    def count():
        with pytest.raises(KeyError, match="inside"):
            count_macs(net, X, backward=True)

    net = calls(fail)
    # torch imports some of its modules at their first use
    count()
    before = state_of_tensors([X, *tensors(net)]), state_of_process()
    count()
    assert (state_of_tensors([X, *tensors(net)]), state_of_process()) == before


def test_memory_that_cannot_be_copied_is_not_written():
    weight = torch.eye(D).to_sparse()
    with pytest.raises(RuntimeError, match="^mul_ in [^\n]* writes to a tensor that is not the run's[^\n]*$"):
        count_macs(lambda x: weight.mul_(2) @ x.T, X)
    assert weight.to_dense().tolist() == torch.eye(D).tolist()


class Refusing(nn.Linear):
    def __deepcopy__(self, memo):
        raise AssertionError("no copy")


@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hook_of_a_module_without_copy_raises(register):
    net, noted = Refusing(D, D), []
    getattr(net.weight, register)(noted.append)
    assert count_macs(net, X).macs == N * D * D
    with pytest.raises(ValueError, match="^Refusing has no copy, and weight has a hook[^\n]*$"):
        count_macs(net, X, backward=True)
    assert noted == []


def test_input_module_without_copy_raises():
    with pytest.raises(ValueError, match="^Refusing refuses to be copied$"):
        count_macs(lambda net: net(X), Refusing(D, D))


@pytest.mark.parametrize("wrap", [lambda rows: rows, lambda rows: {"rows": [rows]}])
def test_iterator_as_input_is_not_used_up(wrap):
    rows, listed = (row for row in [X, X]), iter([X, X])
    forward = calls(lambda self, given: self.linear(next(given if isinstance(given, Iterator) else given["rows"][0])))
    with pytest.raises(ValueError, match="^an input is an iterator \\(generator\\)[^\n]*$"):
        count_macs(forward, wrap(rows))
    assert count_macs(forward, wrap(listed)).macs == N * D * D
    assert len(list(rows)) == len(list(listed)) == 2


JOBS, RESULTS = queue.SimpleQueue(), queue.SimpleQueue()


def work():
    while job := JOBS.get():
        RESULTS.put(job())
        del job


def run_elsewhere(job):
    JOBS.put(job)
    return RESULTS.get()


@pytest.mark.parametrize(
    "forward",
    [
        lambda self, x: run_elsewhere(lambda: self.linear(x)),
        lambda self, x: [run_elsewhere(lambda: x @ self.linear.weight)],
    ],
    ids=["module", "function"],
)
def test_work_elsewhere_is_not_left_out(forward):
    """A thread that runs before the count has it too."""
    thread = threading.Thread(target=work)
    thread.start()
    try:
        with pytest.raises(UnsupportedError, match="(another thread|and came back)"):
            count_macs(calls(forward), X)
        assert count_macs(calls(forward), X, allow_unsupported=True).macs == 0
    finally:
        JOBS.put(None)
        thread.join()


def test_module_of_another_thread_counts_once_by_its_outermost():
    def run_in_thread(self, x):
        thread = threading.Thread(target=lambda: self.parts(x).sum().item())
        thread.start()
        thread.join()
        return x

    with pytest.raises(UnsupportedError, match=r"a module that another thread runs on 4x6 \(in parts\);"):
        count_macs(calls(run_in_thread, parts=frozen()), X)


class Endless:
    """An iterator that runs a module."""

    def __init__(self, net):
        self.net = net

    def __iter__(self):
        return self

    def __next__(self):
        return self.net(X)


class Holder:
    def __init__(self, part):
        self.part = [part]


async def wait(self, x):
    return self.linear(x)


UNRUN = {
    "coroutine": wait,
    "generator-expression": lambda self, x: (self.linear(row) for row in [x]),
    "map": lambda self, x: map(self.linear, [x]),
    "iterator": lambda self, x: Endless(self.linear),
    "function": lambda self, x: lambda: self.linear(x),
    "partial": lambda self, x: functools.partial(self.linear, x),
    "method": lambda self, x: self.linear.forward,
    "cache": lambda self, x: functools.cache(lambda: self.linear(x)),
    "future": lambda self, x: concurrent.futures.Future(),
    "attribute": lambda self, x: [Holder(self.linear(row) for row in [x])],
    "in-containers": lambda self, x: (x, {"later": [lambda: self.linear(x)]}),
}


@pytest.mark.parametrize("kind", UNRUN)
def test_result_that_has_not_run_raises(kind):
    with pytest.raises(ValueError, match="^the result holds an? [^\n]*: [a-z ]* in forward$"):
        count_macs(calls(UNRUN[kind]), X)


def test_result_that_runs_nothing_counts():
    rows, numbers = iter([X]), (number for number in range(3))
    results = (
        F.relu, nn.ReLU(), functools.partial(F.relu, inplace=True), rows, numbers, zip([X], [X], strict=True),
        map(int, "12"), (row for row in [X]),
    )  # fmt: skip
    assert count_macs(calls(lambda self, x: (self.linear(x), *results)), X).macs == N * D * D
    assert list(rows) == [X] and list(numbers) == [0, 1, 2]
