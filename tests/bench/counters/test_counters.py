"""Each counter's count equals the product of its rules, on prime sizes."""

from collections.abc import Callable
from copy import deepcopy
from importlib.metadata import version
from itertools import permutations
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from ptflops import get_model_complexity_info
from torch import nn

from headcount.bench.counters import base, registry
from headcount.bench.counters.base import CounterError
from headcount.formulas.ledger import Entry, ledger

B, T, IN, OUT, V = 3, 5, 7, 11, 13
DEVICES = ("cpu", "meta")
TOOLS = ("ptflops-pytorch", "ptflops-aten", "fvcore", "torch")


class Call(nn.Module):
    """A function of x as a module; submodules by keyword."""

    def __init__(self, function, **modules):
        super().__init__()
        self.function = function
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, x):
        return self.function(self, x)


def tied():
    module = Call(lambda m, x: m.out(m.embed(x)), embed=nn.Embedding(V, IN), out=nn.Linear(IN, V, bias=False))
    module.out.weight = module.embed.weight
    return module, torch.zeros(B, T, dtype=torch.long)


def shared_by_two_parents():
    child = nn.Linear(IN, IN, bias=False)
    one, two = (Call(lambda m, x: m.child(x), child=child) for _ in range(2))
    return Call(lambda m, x: m.two(m.one(x)), one=one, two=two), torch.ones(B, T, IN)


def of(function, shape=(B, T, IN), **modules):
    return lambda: (Call(function, **deepcopy(modules)), torch.ones(*shape))


LINEAR, BIAS, ELEMENTS = B * T * IN * OUT, B * T * OUT, B * T * IN


class Case(NamedTuple):
    """A module with its input and the count of each counter; ptflops-pytorch adds ``surplus`` on meta."""

    make: Callable[[], tuple[nn.Module, torch.Tensor]]
    pytorch: int
    aten: int
    fvcore: int
    torch: int
    surplus: int = 0


CASES = {
    "linear with bias": Case(
        lambda: (nn.Linear(IN, OUT), torch.ones(B, T, IN)),
        *(LINEAR + BIAS, LINEAR + BIAS, LINEAR, LINEAR),
        surplus=LINEAR,
    ),
    "linear": Case(of(lambda m, x: m.f(x), f=nn.Linear(IN, OUT, bias=False)), *4 * [LINEAR]),
    "bias by operator": Case(
        of(lambda m, x: m.f(x) + torch.ones_like(m.f.weight[:, 0]), f=nn.Linear(IN, OUT, bias=False)),
        *4 * [LINEAR],
    ),
    "tied linear": Case(tied, *4 * [B * T * IN * V]),
    "bmm": Case(of(lambda m, x: torch.bmm(x, x.transpose(1, 2))), *4 * [B * T * IN * T]),
    "matmul": Case(
        of(lambda m, x: torch.matmul(x, x.transpose(-1, -2)), shape=(B, 2, T, IN)),
        *4 * [B * 2 * T * IN * T],
    ),
    "called twice": Case(of(lambda m, x: m.f(m.f(x)), f=nn.Linear(IN, IN, bias=False)), *4 * [2 * B * T * IN * IN]),
    # ptflops-pytorch adds a module's sum once for each parent that holds it.
    "shared by two parents": Case(shared_by_two_parents, 4 * B * T * IN * IN, *3 * [2 * B * T * IN * IN]),
    "layer norm": Case(of(lambda m, x: m.f(x), f=nn.LayerNorm(IN)), ELEMENTS, 0, 5 * ELEMENTS, 0),
    "layer norm without scale": Case(
        of(lambda m, x: m.f(x), f=nn.LayerNorm(IN, elementwise_affine=False)), ELEMENTS, 0, 4 * ELEMENTS, 0
    ),
    "embedding": Case(lambda: (nn.Embedding(V, IN), torch.zeros(B, T, dtype=torch.long)), *4 * [0]),
    "softmax": Case(of(lambda m, x: torch.softmax(x, -1)), *4 * [0]),
    "F.softmax": Case(of(lambda m, x: F.softmax(x, -1)), ELEMENTS, 0, 0, 0),
    "relu": Case(of(lambda m, x: torch.relu(x)), *4 * [0]),
    "F.relu": Case(of(lambda m, x: F.relu(x)), ELEMENTS, 0, 0, 0),
    "gelu": Case(of(lambda m, x: torch.ops.aten.gelu(x)), *4 * [0]),
    "gelu by tanh": Case(of(lambda m, x: torch.ops.aten.gelu(x, approximate="tanh")), *4 * [0]),
    "silu": Case(of(lambda m, x: torch.ops.aten.silu(x)), *4 * [0]),
    "glu": Case(of(lambda m, x: F.glu(x, dim=-1), shape=(B, T, 2 * IN)), *4 * [0]),
    "F.gelu": Case(of(lambda m, x: F.gelu(x)), ELEMENTS, 0, 0, 0),
    "nn.GELU": Case(lambda: (nn.GELU(), torch.ones(B, T, IN)), 2 * ELEMENTS, 0, 0, 0),
    "add and multiply": Case(of(lambda m, x: x * x + x), *4 * [0]),
}


def count(name, model, x, label="model"):
    key = "input" if not isinstance(model, Call) else "x"
    return registry.counter(name).read(model, {key: x}, label=label)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES)
def test_count_is_the_product(case, device):
    expected = CASES[case]
    model, x = (part.to(device) for part in expected.make())
    readings = {name: count(name, model, x) for name in TOOLS}
    assert {name: reading.macs for name, reading in readings.items()} == {
        "ptflops-pytorch": expected.pytorch + (expected.surplus if device == "meta" else 0),
        "ptflops-aten": expected.aten,
        "fvcore": expected.fvcore,
        "torch": expected.torch,
    }
    for name, reading in readings.items():
        assert type(reading.macs) is int
        assert (reading.counter, reading.device) == (name, device)


CONV = B * T * 2 * OUT * IN * 3
CONV_BIAS = B * T * 2 * OUT


@pytest.mark.parametrize(
    ("name", "expected"),
    [("ptflops-pytorch", CONV + CONV_BIAS), ("ptflops-aten", CONV + CONV_BIAS), ("fvcore", CONV), ("torch", CONV)],
)
@pytest.mark.parametrize("device", DEVICES)
def test_convolution_in_two_groups(name, expected, device):
    model = nn.Conv1d(2 * IN, 2 * OUT, 3, groups=2).to(device)
    x = torch.ones(B, 2 * IN, T + 2, device=device)
    if (name, device) == ("fvcore", "meta"):
        with pytest.raises(CounterError, match="^fvcore did not count model: TypeError: cond must be a bool"):
            count(name, model, x)
    else:
        assert count(name, model, x).macs == expected
        entries = ledger(Entry("", "conv", {"macs": CONV}), Entry("", "bias", {"outputs": CONV_BIAS}))
        assert base.predict(registry.counter(name), entries, device) == expected


def block():
    """Norm, biased and unbiased linear layers, scores, softmax, values, and an expert bias, under one root."""

    def forward(m, x):
        x = m.norm(x)
        q, k = m.q(x), m.k(x)
        weights = torch.softmax(torch.matmul(q, k.transpose(1, 2)), -1)
        return F.relu(torch.matmul(weights, k)) + m.k.bias

    return Call(forward, norm=nn.LayerNorm(IN), q=nn.Linear(IN, OUT, bias=False), k=nn.Linear(IN, OUT)).eval()


BLOCK_MACS = 2 * LINEAR + 2 * B * T * T * OUT


@pytest.mark.parametrize("device", DEVICES)
def test_order_of_counters_is_irrelevant(device):
    model, x = block().to(device), torch.ones(B, T, IN, device=device)
    orders = [{name: count(name, model, x) for name in order} for order in permutations(TOOLS)]
    assert all(readings == orders[0] for readings in orders)


@pytest.mark.parametrize("backend", ["pytorch", "aten"])
def test_count_is_ptflops_own(backend):
    model, x = block(), torch.ones(B, T, IN)
    direct = get_model_complexity_info(
        model,
        (1,),
        print_per_layer_stat=False,
        as_strings=False,
        input_constructor=lambda _: {"x": x},
        backend=backend,
    )
    reading = count(f"ptflops-{backend}", block(), x)
    assert (reading.macs, reading.params) == direct


def test_parts_of_a_count():
    x = torch.ones(B, T, IN)
    pytorch, aten, fvcore, dispatch = (count(name, block(), x) for name in TOOLS)
    params = 2 * IN + 2 * IN * OUT + OUT
    assert [r.params for r in (pytorch, aten, fvcore, dispatch)] == [params, params, params, None]
    assert [r.tool for r in (pytorch, aten, fvcore, dispatch)] == ["ptflops", "ptflops", "fvcore", "torch"]
    assert [r.backend for r in (pytorch, aten, fvcore, dispatch)] == ["pytorch", "aten", "jit", "dispatch"]
    assert pytorch.by_module is pytorch.by_operator is aten.by_module is dispatch.uncounted is None
    assert pytorch.uncounted == {"Call": 1}
    attention = 2 * B * T * T * OUT
    assert aten.by_operator == {"aten.mm": LINEAR, "aten.addmm": LINEAR + BIAS, "aten.bmm": attention}
    assert aten.uncounted.items() >= {"aten.native_layer_norm": 1, "aten._softmax": 1, "aten.add": 1}.items()
    assert fvcore.by_operator == {"linear": 2 * LINEAR, "matmul": attention, "layer_norm": 5 * ELEMENTS}
    assert fvcore.by_module == {"": BLOCK_MACS + 5 * ELEMENTS, "norm": 5 * ELEMENTS, "q": LINEAR, "k": LINEAR}
    assert fvcore.uncounted == {"aten::softmax": 1, "aten::add": 1}
    assert dispatch.by_operator == {"aten.mm": LINEAR, "aten.addmm": LINEAR, "aten.bmm": attention}
    assert dispatch.by_module == {"": BLOCK_MACS, "q": LINEAR, "k": LINEAR}
    right = count("headcount", block(), x)
    assert (right.macs, right.params, right.uncounted) == (BLOCK_MACS, params, {})
    assert (right.tool, right.backend, right.version) == ("headcount", "trace", version("torch"))
    assert right.by_module == {"q": LINEAR, "k": LINEAR, "": attention}
    assert right.by_operator == {"linear": 2 * LINEAR, "scores": attention // 2, "values": attention // 2}
