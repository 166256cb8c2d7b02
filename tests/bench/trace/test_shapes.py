"""Shapes that are remembered are those that torch works out, and nothing else is remembered."""

import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from headcount.bench.case import Case
from headcount.bench.counters import registry
from headcount.bench.trace import shapes
from headcount.models.build import build, example_inputs


@pytest.fixture(autouse=True)
def nothing_known():
    shapes._KNOWN.clear()


def meta(*sizes, dtype=torch.float32):
    return torch.empty(*sizes, dtype=dtype, device="meta")


CALLS = {
    "sum": lambda x: x + x[:1],
    "product": lambda x: x @ x.transpose(1, 2),
    "biased": lambda x: F.linear(x, meta(11, 7), meta(11)),
    "norm": lambda x: F.layer_norm(x, (7,), meta(7), meta(7)),
    "softmax": lambda x: torch.softmax(x, dim=1, dtype=torch.float64),
    "transposed": lambda x: x.transpose(0, 2) * 2,
    "integers": lambda x: x.argmax(-1) + 1,
    "whole-and-real": lambda x: (x.argmax(-1) + 1, x.argmax(-1) + 1.0, x.argmax(-1) + True),
    "by-name": lambda x: (x.sum(-1, dtype=torch.float64), x.sum(-1, dtype=torch.float32)),
    "several": lambda x: x.topk(3, dim=-1),
    "joined": lambda x: (torch.cat([x, x]), torch.cat([x, x, x])),
    "written": lambda x: x.clone().add_(x),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
    "picked": lambda x: x[:, torch.zeros(5, dtype=torch.int64, device="meta")],
}


def facts(value):
    if isinstance(value, tuple):
        return tuple(map(facts, value))
    return (value.shape, value.stride(), value.dtype, value.storage_offset(), value.device, type(value))


@pytest.mark.parametrize("call", CALLS)
def test_what_is_remembered_is_what_torch_says(call):
    x = meta(2, 5, 7)
    expected = facts(CALLS[call](x))
    with shapes.ShapeCache():
        first, second = CALLS[call](x), CALLS[call](x)
    assert facts(first) == facts(second) == expected


class Seen(TorchDispatchMode):
    """The names of what comes through."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.names.append(operation.overloadpacket.__name__)
        return operation(*args, **(kwargs or {}))


def test_an_equal_call_is_worked_out_once_and_seen_by_every_mode():
    x = meta(2, 5, 7)
    with Seen() as below, shapes.ShapeCache(), Seen() as above:
        for _ in range(3):
            torch.softmax(x, dim=1)
    assert above.names == ["_softmax"] * 3
    assert below.names == ["_softmax", "empty_strided", "empty_strided"]


def test_a_callers_own_mode_sees_every_operation():
    module, x = nn.Linear(5, 7, device="meta"), meta(3, 5)
    with Seen() as outside:
        for _ in range(2):
            with shapes.cache_shapes(module):
                module(x)
    assert outside.names == ["t", "addmm"] * 2


@pytest.mark.parametrize(
    "call",
    [lambda x: x.view(-1), lambda x: x.add_(1), lambda x: torch.rand_like(x), lambda x: torch.zeros(3, device="meta")],
    ids=["view", "in-place", "random", "no-tensor"],
)
def test_what_shares_memory_writes_draws_or_reads_nothing_is_not_remembered(call):
    with shapes.ShapeCache():
        call(meta(2, 5, 7))
    assert not shapes._KNOWN


def test_tensors_with_values_are_not_remembered():
    with shapes.ShapeCache():
        out = torch.ones(2, 3) + torch.ones(2, 3)
    assert not shapes._KNOWN and out.eq(2).all()
    assert isinstance(shapes.cache_shapes(nn.Linear(2, 3, device="meta")), shapes.ShapeCache)
    for module in (nn.Linear(2, 3), nn.Identity()):
        assert not isinstance(shapes.cache_shapes(module), shapes.ShapeCache)


def test_a_result_has_memory_of_its_own():
    x = meta(2, 5)
    with shapes.ShapeCache():
        kept = [x, *(x + x for _ in range(3))]
    assert len({y.untyped_storage()._cdata for y in kept}) == 4


def test_the_default_type_is_a_part_of_the_question():
    whole, found = meta(3, dtype=torch.int64), []
    try:
        for default in (torch.float32, torch.float64):
            torch.set_default_dtype(default)
            with shapes.ShapeCache():
                found.append((whole / 2).dtype)
    finally:
        torch.set_default_dtype(torch.float32)
    assert found == [torch.float32, torch.float64]


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(shapes, "MOST", 3)
    with shapes.ShapeCache():
        for size in range(1, 9):
            meta(size) + 1
            assert len(shapes._KNOWN) <= 3


@pytest.mark.parametrize("tool", registry.NAMES)
@pytest.mark.parametrize("name", ["transnext-micro", "moh-llm-s-75"])
def test_a_tool_reads_the_same(name, tool, monkeypatch):
    smaller = {"depths": (1, 1, 1, 2)} if name.startswith("transnext") else {"num_layers": 2}
    case = Case.of(name, smaller)
    model, adapter = build(case.config, device="meta", initialise=False), registry.counter(tool)
    inputs = example_inputs(case.config, case.lengths, device="meta")
    remembered = [adapter.read(model, inputs, label=name) for _ in range(2)]
    monkeypatch.setattr(shapes, "_makes_anew", lambda operation: False)
    assert remembered == 2 * [adapter.read(model, inputs, label=name)]


@pytest.mark.parametrize("call", CALLS)
def test_on_the_cpu_too(call, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "meta", lambda *sizes, **_: torch.ones(*sizes))
    monkeypatch.setitem(CALLS, "picked", lambda x: x[:, torch.zeros(5, dtype=torch.int64)])
    x = torch.ones(2, 5, 7)
    expected = facts(CALLS[call](x))
    with shapes.skip_values("cpu"):
        first, second = CALLS[call](x), CALLS[call](x)
    assert facts(first) == facts(second) == expected


def test_on_the_cpu_whole_numbers_have_values_and_shapes_that_follow_from_values_are_asked_for():
    x = torch.tensor([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]])
    with shapes.skip_values("cpu"):
        for _ in range(2):
            assert x.topk(2).indices.tolist() == [[0, 2], [1, 2]]
        for kept in (x > 2, x > 4):
            assert x[kept].shape == (kept.sum(),)
    assert not any("index" in str(known) or "topk" in str(known) for known in shapes._KNOWN)


def test_on_the_cpu_an_equal_product_is_made_once():
    x = torch.ones(3, 5)
    with Seen() as below, shapes.skip_values("cpu"):
        for _ in range(3):
            torch.mm(x, x.t())
    assert below.names == ["t", "mm", "t", "empty_strided", "t", "empty_strided"]


def test_a_model_of_its_own_values_is_left_alone():
    for elsewhere in ("meta", "cuda"):
        assert not isinstance(shapes.skip_values(elsewhere), shapes.ShapeCache)


@pytest.mark.parametrize("tool", registry.NAMES)
def test_a_tool_reads_the_same_on_the_cpu_without_values(tool):
    layers = {"num_encoder_layers": 2, "num_decoder_layers": 2}
    case = Case.of("moa-8K8E128D", {**layers, "d_model": 16, "vocab_size": 7, "head_dim": 5, "d_ff": 11})
    model, adapter = build(case.config, initialise=False), registry.counter(tool)
    inputs = example_inputs(case.config, case.lengths)
    plain = adapter.read(model, inputs, label=tool)
    with shapes.skip_values("cpu"):
        assert adapter.read(model, inputs, label=tool) == plain


def test_several_results_of_one_call_are_remembered_together():
    x = meta(5, 7)
    with Seen() as below, shapes.ShapeCache():
        for _ in range(2):
            x.topk(3, dim=-1)
    assert below.names == ["topk", "empty_strided", "empty_strided"]
