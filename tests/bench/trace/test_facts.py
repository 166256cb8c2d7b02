"""Facts about tensors that a recorded run stores."""

from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F

from headcount.bench.trace.events import OPERATION
from headcount.bench.trace.record import record
from tests.bench.contractions.function_modules import module


def test_fact_matches_tensor():
    whole = torch.ones(7, 5, dtype=torch.float64)
    views = (whole, whole[2:], whole.T, whole[:, 3], torch.arange(3))
    facts = record(module(lambda *inputs: inputs[0]), views).args
    for view, fact in zip(views, facts, strict=True):
        own = (view.shape, view.stride(), view.storage_offset(), view.numel())
        assert (fact.shape, fact.strides, fact.offset, fact.numel) == own
        assert f"torch.{fact.dtype}" == str(view.dtype)
    assert [fact.storage == facts[0].storage for fact in facts] == [True, True, True, True, False]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_fact_of_nested_tensor():
    nested = torch.nested.nested_tensor([torch.ones(2, 5), torch.ones(3, 5)], dtype=torch.float64)
    (fact,) = record(module(lambda x: x), (nested,)).args
    assert (fact.shape, fact.dtype, fact.strides) == ((), "float64", None)
    assert (fact.parts, fact.stored) == (((2, 5), (3, 5)), 2 * 5 + 3 * 5)


def _set_data(x):
    x.data = torch.ones(5, 7)
    return x


def _swap(x):
    torch.utils.swap_tensors(x, torch.ones(5, 7))
    return x


CHANGES = {
    "data": _set_data,
    "swapped": _swap,
    "resized": lambda x: x.resize_(5, 7),
    "set": lambda x: x.set_(torch.ones(5, 7)),
    "transposed": lambda x: x.t_(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_tensor_is_described_again(change):
    def run(x):
        own = x + 1
        return torch.relu(CHANGES[change](own))

    (event,) = (event for event in record(module(run), (torch.ones(7, 5),)).operations() if event.name == "relu")
    assert event.args[0].shape == (5, 7)


def test_written_tensor_has_its_last_writer():
    def run(x):
        own = x + 1
        torch.relu(own)
        own.mul_(x)
        return torch.relu(own)

    trace = record(module(run), (torch.ones(7, 5),))
    sources = [event.args[0].source for event in trace.operations() if event.name == "relu"]
    assert [trace.events[index].name for index in sources] == ["add", "mul_"]


def test_recording_leaves_no_weak_references():
    linear = torch.nn.Linear(5, 3)
    record(linear, (torch.ones(2, 5),))
    torch.utils.swap_tensors(linear.weight, torch.nn.Parameter(torch.ones(3, 5)))


def test_dataclass_inputs_are_described():
    @dataclass
    class Batch:
        tokens: torch.Tensor
        name: str

    (fields,) = record(module(lambda batch: batch.tokens + 1), (Batch(torch.ones(3, 5), "first"),)).args
    assert list(fields) == ["tokens"] and fields["tokens"].shape == (3, 5)


def test_decomposed_operation_keeps_keywords():
    q, k = torch.ones(2, 6, 5, 8), torch.ones(2, 3, 7, 8)

    def attend(q, k):
        return F.scaled_dot_product_attention(q, k, k, is_causal=False, scale=0.5, enable_gqa=True)

    def inferring(q, k):
        with torch.inference_mode():
            return attend(q, k)

    plain, inferred = (record(module(function), (q, k)) for function in (attend, inferring))
    assert any(event.composite for event in inferred.events if event.what == OPERATION)
    parts = [[(event.name, event.kwargs) for event in trace.operations()] for trace in (plain, inferred)]
    assert parts[0] == parts[1] and plain.out[0].shape == inferred.out[0].shape == (2, 6, 5, 8)


def test_every_out_tensor_is_written():
    def smallest(x, values, places):
        torch.sort(x, out=(values, places))
        return values + places

    shapes = torch.ones(5), torch.empty(5), torch.empty(5, dtype=torch.int64)
    trace = record(module(smallest), shapes)
    sort, added = trace.operations()
    assert sort.writes == tuple(fact.storage for fact in trace.args[1:])
    assert [fact.source for fact in added.args] == [sort.index] * 2


def test_output_gradient_is_contiguous():
    seen = []

    class Turned(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return (2 * x).mT

        @staticmethod
        def backward(ctx, gradient):
            seen.append((gradient.is_contiguous(), gradient.unique().tolist()))
            return gradient.mT

    record(module(lambda x: Turned.apply(x)), (torch.ones(3, 5),), backward=True)
    assert seen == [(True, [1])]


FOREACH = {
    "mul": (lambda x, y: torch._foreach_mul([x, y], 3.0), [3, 3]),
    "lerp": (lambda x, y: torch._foreach_lerp([x, y], [5 * x, 7 * y], 0.5), [3, 4]),
    "addcmul": (lambda x, y: torch._foreach_addcmul([x, y], (x, x), [y, y], value=7), [8, 8]),
    "addcmul of each": (lambda x, y: torch._foreach_addcmul([x, y], [x, x], [y, y], [7.0, 11.0]), [8, 12]),
}


@pytest.mark.parametrize("name", FOREACH)
def test_foreach_scalars_apply_to_each_tensor(name):
    function, expected = FOREACH[name]
    found = []
    record(module(lambda *inputs: found.extend(function(*inputs))), (torch.ones(5), torch.ones(3, 5)))
    assert [out.unique().tolist() for out in found] == [[value] for value in expected]
    trace = record(module(function), (torch.ones(5), torch.ones(3, 5)))
    assert [event.name for event in trace.operations()][-2:] == 2 * name.split()[:1]


def test_mask_without_values_hides_no_pairs():
    from headcount.bench.counting.copies import FakeWeights
    from headcount.bench.trace.masks import operand_pairs

    fake, numbers = FakeWeights(0).without_values, torch.zeros(2, 3)
    mask, scores = torch.tensor([True, False, False]), fake(numbers)
    assert operand_pairs("where", (mask, scores, numbers), scores) == (2, 6)
    assert operand_pairs("masked_fill", (scores, mask, 0.0), scores) == (4, 6)
    assert operand_pairs("where", (fake(mask), scores, numbers), scores) is None
    assert operand_pairs("masked_fill", (numbers, fake(mask), 0.0), scores) is None
