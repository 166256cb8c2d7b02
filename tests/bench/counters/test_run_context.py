"""Inputs and errors of counters; a count restores the model, the standard streams and torch."""

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from headcount.bench.counters import ptflops_run, registry
from headcount.bench.counters.base import CounterError, exact_int, macs_from_flops
from headcount.bench.counters.run_context import one_line, run_counter
from headcount.bench.counting.tools import read
from tests.bench.contractions.function_modules import module

TOOLS = (*registry.tools(), "headcount")


def test_last_ptflops_exception_is_the_reason(monkeypatch):
    def fail(*args, **kwargs):
        print("the following exception: \n<class 'KeyError'>: early")
        print("the following exception: \n<class 'a.b.C'>: late")
        return None, None

    monkeypatch.setattr(ptflops_run, "get_model_complexity_info", fail)
    with pytest.raises(CounterError, match="^ptflops-aten did not count it: C: late$"):
        run_counter(registry.counter("ptflops-aten"), nn.Linear(3, 5), {"input": torch.ones(2, 3)}, label="it")


def test_dynamo_is_imported_before_ptflops_replaces_functions(monkeypatch):
    steps = []
    monkeypatch.setattr(ptflops_run, "import_module", steps.append)
    monkeypatch.setattr(ptflops_run, "get_model_complexity_info", lambda *_, **__: steps.append("run") or (1, 0))
    ptflops_run.run(nn.Linear(3, 5), {"input": torch.ones(2, 3)}, backend="pytorch")
    assert steps == ["torch._dynamo", "run"]


def test_random_module_is_seeded_for_each_counter():
    rows = module(lambda x, w: x[: torch.randint(1, 1000, ())] @ w)
    found = read(rows, [torch.ones(1000, 3), torch.ones(3, 5)], counters=["torch", "ptflops-aten"], label="drawn")
    assert [cell.macs for cell in found.tools] == [found.macs] * 2


def test_nested_inputs():
    class Nested(nn.Module):
        def forward(self, pair, *, options):
            assert isinstance(pair, list) and options["scale"] == 2
            (a, b), c = pair, options["third"][0]
            return {"out": options["scale"] * (a @ b) @ c}

    a, b, c = (torch.ones(shape) for shape in ((3, 5), (5, 7), (7, 11)))
    found = read(Nested(), [[a, b]], {"options": {"third": (c,), "scale": 2}}, label="nested")
    assert found.macs == 3 * 5 * 7 + 3 * 7 * 11
    by_operator = {cell.counter: cell.macs for cell in found.tools if cell.counter != "ptflops-pytorch"}
    assert by_operator.values() and set(by_operator.values()) == {found.macs}


class Block(nn.Module):
    """A norm, linear layers with and without bias, scores and values; with ``fails`` the forward raises."""

    def __init__(self, fails=False):
        super().__init__()
        self.norm, self.q, self.k = nn.LayerNorm(7), nn.Linear(7, 11, bias=False), nn.Linear(7, 11)
        self.fails = fails

    def forward(self, x):
        print("in forward")
        q, k = self.q(self.norm(x)), self.k(x)
        weights = torch.softmax(torch.matmul(q, k.transpose(1, 2)), -1)
        if self.fails:
            raise RuntimeError("first line\nsecond line")
        return torch.matmul(weights, k) + self.k.bias


def count(name, model, label="it"):
    return run_counter(registry.counter(name), model, {"x": torch.ones(3, 5, 7)}, label=label)


LINEAR, ATTENTION, BIAS, ELEMENTS = 3 * 5 * 7 * 11, 2 * 3 * 5 * 5 * 11, 3 * 5 * 11, 3 * 5 * 7
MACS = 2 * LINEAR + ATTENTION
PARTS = {
    "ptflops-pytorch": (MACS + BIAS + ELEMENTS, {"Block": 1}),
    "ptflops-aten": (MACS + BIAS, {"aten.native_layer_norm": 1, "aten._softmax": 1, "aten.add": 1}),
    "fvcore": (MACS + 5 * ELEMENTS, {"aten::softmax": 1, "aten::add": 1}),
    "torch": (MACS, None),
    "deepspeed": (MACS, None),
    "headcount": (MACS, {}),
}


def state_of(model):
    names = [dict(vars(owner)) for owner in (torch, F, torch.Tensor)]
    return names, [
        (len(m._forward_hooks), len(m._forward_pre_hooks), sorted(vars(m)), m.training) for m in model.modules()
    ]


@pytest.mark.parametrize("name", TOOLS)
def test_count_of_a_block(name, capfd):
    model, (macs, unsupported) = Block(), PARTS[name]
    before = state_of(model)
    found = count(name, model)
    assert (found.counter, found.device, type(found.macs), found.macs) == (name, "cpu", int, macs)
    if name == "ptflops-aten":
        # it lists views too
        assert found.unsupported.items() >= unsupported.items()
    else:
        assert found.unsupported == unsupported
    assert count(name, model) == found and state_of(model) == before and capfd.readouterr() == ("", "")
    layer = weakref.ref(model.q)
    gc.disable()
    try:
        del model
        assert layer() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("name", TOOLS)
def test_failed_count_restores_torch(name, capfd):
    model = Block(fails=True)
    before = state_of(model)
    with pytest.raises(CounterError, match=f"^{name} did not count moa-tiny: RuntimeError: first line$"):
        count(name, model, label="moa-tiny")
    assert state_of(model) == before and capfd.readouterr() == ("", "")


def test_odd_flops_raise():
    assert macs_from_flops(2 * 7) == 7
    with pytest.raises(ValueError, match="^7 FLOPs are not twice a number of multiply-accumulates$"):
        macs_from_flops(7)
    with pytest.raises(ValueError, match=r"^0\.5 is not a whole number$"):
        exact_int(0.5)


def test_one_line_drops_addresses():
    assert one_line("TypeError", " no rule for <f at 0x7f3a9> \nand more") == "TypeError: no rule for <f>"
    assert one_line("KeyError", " \n") == "KeyError"
