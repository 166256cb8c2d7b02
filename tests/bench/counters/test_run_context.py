"""Inputs of counters, and the errors of inputs and tools."""

import re

import pytest
import torch
from torch import nn

from headcount.bench.counters import ptflops_run, registry
from headcount.bench.counters.base import CounterError
from headcount.bench.counters.results import read
from headcount.bench.counters.run_context import arguments, device_of
from tests.bench.contractions.written import module


def test_device_of_inputs():
    here, there = torch.ones(3), torch.ones(3, device="meta")
    assert (device_of({}), device_of({"x": here}), device_of({"x": there, "y": there})) == ("cpu", "cpu", "meta")
    with pytest.raises(ValueError, match=r"^inputs on one device expected, found \['cpu', 'meta'\]$"):
        device_of({"x": there, "y": here})


def test_positional_order_of_inputs():
    class Named(nn.Module):
        def forward(self, a, b, *, c=None, d=None): ...

    a, b, c = (torch.ones(size) for size in (3, 5, 7))
    assert arguments(Named(), {"b": b, "a": a}) == (a, b)
    assert arguments(module(lambda *of: None), {"b": b, "a": a}) == (b, a)
    with pytest.raises(TypeError, match=r"^c, d cannot be passed by position$"):
        arguments(Named(), {"a": a, "b": b, "c": c, "d": c})


@pytest.mark.parametrize("backend", ["aten", "pytorch"])
@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        ("", "it returned (None, None)"),
        ("the following exception: \n<class 'torch.Lost'>: first\n", "Lost: first"),
        (
            "the following exception: \n<class 'KeyError'>: early\nthe following exception: \n<class 'a.b.C'>: late\n",
            "C: late",
        ),
    ],
)
def test_last_ptflops_exception_is_the_reason(backend, printed, reason, monkeypatch):
    def nothing(*args, **kwargs):
        print(printed)
        return None, None

    monkeypatch.setattr(ptflops_run, "get_model_complexity_info", nothing)
    name = f"ptflops-{backend}"
    with pytest.raises(CounterError, match=f"^{name} did not count it: {re.escape(reason)}$"):
        registry.counter(name).read(nn.Linear(3, 5), {"input": torch.ones(2, 3)}, label="it")


def test_random_module_is_seeded_for_each_counter():
    rows = module(lambda x, w: x[: torch.randint(1, 1000, ())] @ w)
    before = torch.random.get_rng_state()
    found = read(rows, [torch.ones(1000, 3), torch.ones(3, 5)], counters=["torch", "ptflops-aten"], label="drawn")
    assert [cell.macs for cell in found.counters] == [found.headcount.macs] * 2
    assert torch.equal(torch.random.get_rng_state(), before)


def test_nested_inputs():
    class Nested(nn.Module):
        def forward(self, pair, *, options):
            assert isinstance(pair, list) and options["scale"] == 2
            (a, b), c = pair, options["third"][0]
            return {"out": options["scale"] * (a @ b) @ c}

    a, b, c = (torch.ones(shape) for shape in ((3, 5), (5, 7), (7, 11)))
    found = read(Nested(), [[a, b]], {"options": {"third": (c,), "scale": 2}}, label="nested")
    assert found.headcount.macs == 3 * 5 * 7 + 3 * 7 * 11
    by_operator = {cell.counter: cell.macs for cell in found.counters if cell.counter != "ptflops-pytorch"}
    assert by_operator.values() and set(by_operator.values()) == {found.headcount.macs}
