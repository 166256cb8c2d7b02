"""What goes into a counter, and that a count leaves the model, the streams and torch as they were."""

import gc
import subprocess
import sys
import weakref

import pytest
import torch
from torch import nn

from headcount.bench.counters import registry
from headcount.bench.counters.base import CounterError, macs_from_flops, whole
from headcount.bench.counters.run_context import one_line
from headcount.bench.errors import EnvironmentMissing

B, T, IN, OUT = 3, 5, 7, 11
TOOLS = (*registry.NAMES, "right")


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(IN)
        self.f = nn.Linear(IN, OUT)

    def forward(self, x):
        return self.f(self.norm(x))


def count(name, model, label="model"):
    return registry.counter(name).read(model, {"x": torch.ones(B, T, IN)}, label=label)


class Two(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


@pytest.mark.parametrize("name", TOOLS)
def test_inputs_go_by_name(name):
    a, b = torch.ones(2, 3), torch.ones(3, 5)
    assert registry.counter(name).read(Two(), {"b": b, "a": a}, label="two").macs == 2 * 3 * 5
    with pytest.raises(CounterError, match=r"^.* did not count two: TypeError: missing a required argument: 'b'$"):
        registry.counter(name).read(Two(), {"a": a}, label="two")


class Fails(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(IN, OUT)

    def forward(self, x):
        print("in forward")
        self.f(x)
        raise RuntimeError("first line\nsecond line")


def hooks(model):
    return [(len(m._forward_hooks), len(m._forward_pre_hooks), sorted(vars(m)), m.training) for m in model.modules()]


@pytest.mark.parametrize("name", TOOLS)
def test_a_failing_model_is_one_line_and_leaves_no_trace(name, capfd):
    unbroken = count(name, Tiny())
    model = Fails()
    before = hooks(model)
    with pytest.raises(CounterError) as raised:
        count(name, model, label="moa-tiny")
    assert str(raised.value) == f"{name} did not count moa-tiny: RuntimeError: first line"
    assert hooks(model) == before
    assert capfd.readouterr() == ("", "")
    # The functions that ptflops patches are back.
    assert count(name, Tiny()) == unbroken


@pytest.mark.parametrize("name", TOOLS)
def test_a_count_leaves_the_model_and_the_streams_as_they_were(name, capfd):
    model = Tiny().train()
    model.norm.eval()
    handle = model.register_forward_hook(lambda module, inputs, output: print("called"))
    before = hooks(model)
    count(name, model)
    assert hooks(model) == before
    assert torch.is_grad_enabled()
    assert capfd.readouterr() == ("", "")
    handle.remove()


@pytest.mark.parametrize("name", TOOLS)
def test_a_counted_model_is_freed_without_garbage_collection(name):
    model = Tiny()
    count(name, model)
    gone = weakref.ref(model.f)
    gc.disable()
    try:
        del model
        assert gone() is None
    finally:
        gc.enable()


def test_odd_flops_and_fractions_are_errors():
    assert macs_from_flops(2 * IN) == IN
    with pytest.raises(ValueError, match="^7 FLOPs are not twice a number of multiply-accumulates$"):
        macs_from_flops(7)
    with pytest.raises(ValueError, match=r"^0\.5 is not a whole number$"):
        whole(0.5)


def test_an_unknown_counter_is_an_error_with_the_names():
    names = ", ".join(registry.COUNTERS)
    with pytest.raises(ValueError, match=f"^unknown counter 'thop'; one of {names}$"):
        registry.counter("thop")


def test_an_extra_that_is_not_installed_is_not_compared_and_says_how_to_be(monkeypatch):
    monkeypatch.setitem(registry.COUNTERS, "extra", "a_file:a_package_that_nobody_has")
    assert not registry.installed("extra") and registry.installed("torch")
    with pytest.raises(EnvironmentMissing, match=r"^extra is not installed; pip install 'headcount\[a_package_that"):
        registry.counter("extra")


@pytest.mark.parametrize("name", TOOLS)
def test_registry_and_adapter_agree_on_the_name(name):
    assert registry.counter(name).NAME == name


def test_the_registry_imports_no_torch():
    code = "import bench.counters.registry, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_an_error_is_its_type_and_its_first_line_without_addresses():
    assert one_line("TypeError", " no rule for <f at 0x7f3a9> \nand more") == "TypeError: no rule for <f>"
    assert one_line("KeyError", " \n") == "KeyError"
