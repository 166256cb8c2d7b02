"""What goes into a counter, and that a count leaves the model, the streams and torch as they were."""

import gc
import weakref

import pytest
import torch
from torch import nn

from headcount.bench.counters import registry
from headcount.bench.counters.base import CounterError, macs_from_flops, whole
from headcount.bench.counters.run_context import one_line

B, T, IN, OUT = 3, 5, 7, 11
TOOLS = (*registry.NAMES, "headcount")


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
def test_failing_model_is_restored(name, capfd):
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
def test_counted_model_is_freed(name):
    model = Tiny()
    count(name, model)
    gone = weakref.ref(model.f)
    gc.disable()
    try:
        del model
        assert gone() is None
    finally:
        gc.enable()


def test_odd_flops_raise():
    assert macs_from_flops(2 * IN) == IN
    with pytest.raises(ValueError, match="^7 FLOPs are not twice a number of multiply-accumulates$"):
        macs_from_flops(7)
    with pytest.raises(ValueError, match=r"^0\.5 is not a whole number$"):
        whole(0.5)


def test_one_line_drops_addresses():
    assert one_line("TypeError", " no rule for <f at 0x7f3a9> \nand more") == "TypeError: no rule for <f>"
    assert one_line("KeyError", " \n") == "KeyError"
