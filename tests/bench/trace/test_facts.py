"""What a recorded run says of tensors, and of modules that are no part of the model."""

from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from headcount.bench.trace.events import MODULE, OPERATION
from headcount.bench.trace.record import record
from tests.bench.contractions.written import module


def test_a_fact_is_what_torch_says_of_the_tensor():
    whole = torch.ones(7, 5, dtype=torch.float64)
    views = (whole, whole[2:], whole.T, whole[:, 3], torch.arange(3))
    facts = record(module(lambda *inputs: inputs[0]), views).args
    for view, fact in zip(views, facts, strict=True):
        own = (view.shape, view.stride(), view.storage_offset(), view.is_contiguous(), view.numel())
        assert (fact.shape, fact.strides, fact.offset, fact.contiguous, fact.numel) == own
        assert f"torch.{fact.dtype}" == str(view.dtype)
    assert [fact.storage == facts[0].storage for fact in facts] == [True, True, True, True, False]


def test_where_a_sparse_tensor_lies_is_not_said():
    (fact,) = record(module(lambda x: x), (torch.eye(3).to_sparse(),)).args
    assert (fact.shape, fact.strides, fact.offset, fact.stored) == ((3, 3), None, 0, 3)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_of_a_nested_tensor_its_parts_are_known_and_how_much_they_hold():
    nested = torch.nested.nested_tensor([torch.ones(2, 5), torch.ones(3, 5)], dtype=torch.float64)
    (fact,) = record(module(lambda x: x), (nested,)).args
    assert (fact.shape, fact.dtype, fact.contiguous, fact.strides) == ((), "float64", False, None)
    assert (fact.parts, fact.stored) == (((2, 5), (3, 5)), 2 * 5 + 3 * 5)


def test_tensors_are_found_in_the_fields_of_an_object():
    @dataclass
    class Batch:
        tokens: torch.Tensor
        name: str

    (fields,) = record(module(lambda batch: batch.tokens + 1), (Batch(torch.ones(3, 5), "first"),)).args
    assert list(fields) == ["tokens"] and fields["tokens"].shape == (3, 5)
    # what has none, and what is none, is known by its type
    (said,) = record(module(lambda batch: torch.ones(3)), (object(),)).args
    assert said == "object"


def test_a_module_that_is_made_on_the_way_stands_by_its_type_in_the_one_around_it():
    class Inner(nn.Module):
        def forward(self, x):
            return nn.Linear(5, 3)(x)

    def paths(model):
        return [event.path for event in record(model, (torch.ones(2, 5),)).events if event.what == MODULE]

    assert paths(nn.Sequential(Inner())) == ["", "0", "0.(Linear)"]
    assert paths(Inner()) == ["", "(Linear)"]


def test_an_operation_that_is_taken_apart_keeps_what_it_was_given_by_name():
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


def test_an_operation_writes_to_all_that_it_is_given_to_write_to():
    def smallest(x, values, places):
        torch.sort(x, out=(values, places))
        return values + places

    shapes = torch.ones(5), torch.empty(5), torch.empty(5, dtype=torch.int64)
    trace = record(module(smallest), shapes)
    sort, added = trace.operations()
    assert sort.writes == tuple(fact.storage for fact in trace.args[1:])
    assert [fact.source for fact in added.args] == [sort.index] * 2


@pytest.mark.parametrize(("function", "result"), [(torch.mul, "mul"), (torch.add, "add")])
def test_a_result_that_is_given_right_after_the_operands_is_written_to(function, result):
    trace = record(module(lambda x, y, z: function(x, y, out=z) + 1), [torch.ones(3, 5) for _ in range(3)])
    first, second = trace.operations()
    assert (first.name, first.writes) == (result, (trace.args[2].storage,))
    assert second.args[0].source == first.index


def test_a_gradient_comes_from_outside_without_gaps_however_the_result_lies():
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


def test_products_of_lists_that_are_written_in_place_have_no_result_of_their_own():
    def scaled(x, y):
        torch._foreach_mul_([x, y], [y, y])
        return torch._foreach_mul([x], [y])[0]

    trace = record(module(scaled), (torch.ones(3, 5), torch.ones(3, 5)))
    written, made = (event for event in trace.events if event.composite)
    assert written.name == "_foreach_mul_" and written.out is None
    assert made.name == "_foreach_mul" and [fact.shape for fact in made.out] == [(3, 5)]
    assert [event.name for event in trace.operations()] == ["mul_", "mul_", "mul"]


BESIDE = {
    "mul": (lambda x, y: torch._foreach_mul([x, y], 3.0), [3, 3]),
    "lerp": (lambda x, y: torch._foreach_lerp([x, y], [5 * x, 7 * y], 0.5), [3, 4]),
    "addcmul": (lambda x, y: torch._foreach_addcmul([x, y], (x, x), [y, y], value=7), [8, 8]),
    "addcmul of each": (lambda x, y: torch._foreach_addcmul([x, y], [x, x], [y, y], [7.0, 11.0]), [8, 12]),
}


@pytest.mark.parametrize("name", BESIDE)
def test_what_stands_beside_the_lists_goes_with_each_of_their_tensors(name):
    function, expected = BESIDE[name]
    found = []
    record(module(lambda *inputs: found.extend(function(*inputs))), (torch.ones(5), torch.ones(3, 5)))
    assert [out.unique().tolist() for out in found] == [[value] for value in expected]
    trace = record(module(function), (torch.ones(5), torch.ones(3, 5)))
    assert [event.name for event in trace.operations()][-2:] == 2 * name.split()[:1]


def test_of_a_modules_attributes_numbers_and_words_are_known_and_tuples_of_them():
    class Sized(nn.Module):
        def __init__(self):
            super().__init__()
            self.size, self.word, self.none, self.tuple = 3, "same", None, (5, ("x", 7.0))
            self.list, self.mixed, self.deeper = [3], (3, object()), (3, (5, [7]))

        def forward(self, x):
            return x

    (fact,) = record(Sized(), (torch.ones(3),)).modules
    known = {name: value for name, value in fact.attributes.items() if not name.startswith("_")}
    assert known == {"training": True, "size": 3, "word": "same", "none": None, "tuple": (5, ("x", 7.0))}


def test_a_modules_parameters_are_known_by_their_shapes_and_one_that_it_goes_without_too():
    (fact,) = record(nn.Linear(5, 3, bias=False), (torch.ones(2, 5),)).modules
    assert fact.parameters == {"weight": (3, 5), "bias": None}


def test_plain_tensors_of_every_module_are_given():
    model = nn.Sequential(nn.Identity(), nn.Identity())
    for part, size in zip(model, (7, 11), strict=True):
        part.table = torch.ones(size)
    assert len(record(model, (torch.ones(5),)).given) == 2
