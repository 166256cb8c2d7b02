"""What a value keeps of the products that it is made of, on its way through moves, sums and writes."""

import pytest
import torch
import torch.nn.functional as F

from headcount.bench.contractions.count import count_contractions
from headcount.bench.contractions.elementwise import CONTRACTION, SCALED
from headcount.bench.trace.record import record
from tests.bench.contractions.test_elementwise import sizes
from tests.bench.contractions.written import module

PLACES = torch.arange(5)


def filled_and_added_to(x, y, z, w):
    state = torch.full((3, 5), 2.0)
    state[:, :2].add_(w[:, :2])
    return state * y + x * z


def filled(x, y, z, w):
    return torch.full((3, 5), 2.0) * y + x * z


def dims_of(function, *shapes):
    """The sizes of each product, kept and summed."""
    trace = record(module(function), [torch.ones(shape) for shape in shapes])
    return [part.dims for part in count_contractions(trace).elementwise]


def test_one_index_after_another_is_summed_as_both_at_once():
    def dims(function):
        return dims_of(function, (3, 5, 7), (5, 7))

    at_once = dims(lambda x, w: (x * w).sum((1, 2)))
    assert at_once == dims(lambda x, w: (x * w).sum(2).sum(1)) == [{"m": 3, "i": 35}]


def test_an_index_is_seen_behind_a_sum_over_another_that_one_operand_has():
    assert sizes(lambda x, w: (x * w).sum(2), (3, 5, 7), (5, 1)) == {}
    assert sizes(lambda x, w: (x * w).sum(2).sum(1), (3, 5, 7), (5, 1)) == {CONTRACTION: 3 * 5 * 7}


def test_a_pool_sums_over_places_alone():
    sizes = (2, 3, 5, 7)
    assert dims_of(lambda x, w: F.avg_pool2d(x * w, (1, 3)), sizes, sizes) == [{"m": 2 * 3, "i": 5 * 7}]


def test_an_interpolation_is_summed_over_what_its_weight_has():
    shapes = (7, 5), (7, 5), (7, 1)
    assert dims_of(lambda a, b, w: torch.lerp(a, b, w).sum(0), *shapes) == [{"m": 5, "i": 7}]
    assert dims_of(lambda a, b, w: torch.lerp(a, b, w).sum(1), *shapes) == [{"m": 35}]
    (part,) = count_contractions(record(module(torch.lerp), [torch.ones(shape) for shape in shapes])).elementwise
    assert part.call == "lerp"


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.complex64, torch.int64], ids=str)
def test_numbers_that_are_not_whole_are_multiplied_and_added_up(dtype):
    trace = record(module(lambda a, b, c, d: a * b + c * d), [torch.ones(7, 5, dtype=dtype) for _ in range(4)])
    found = [part.size for part in count_contractions(trace).elementwise]
    # whole numbers are places and positions
    assert found == ([] if dtype == torch.int64 else [35, 35])


def test_products_of_one_pair_meet_after_a_sum_over_what_one_of_them_has():
    def added(x, w, c):
        return (c + (x[:, :5] * w).sum(1)) + (x[:, 1:] * w).sum(1)

    assert sizes(added, (3, 6, 7), (3, 1, 7), (3, 7)) == {CONTRACTION: 2 * 3 * 5 * 7}


def test_a_product_of_a_view_is_the_one_that_is_summed():
    trace = record(module(lambda x, v, w: ((x * v).view(35) * w).sum()), [torch.ones(s) for s in ((7, 5), (7, 1), 35)])
    assert [part.shapes for part in count_contractions(trace).elementwise] == [((35,), (35,))]


def test_what_is_repeated_in_memory_is_so_in_a_view_of_it():
    def gated(x, g):
        return (x[..., None] * g[:, None].expand(2, 7, 5).contiguous().view(2, 7, 5, 1)).mean(1)

    assert sizes(gated, (2, 7, 5), (2, 5)) == {}


def test_a_product_of_what_is_repeated_is_repeated():
    def function(x, y, z):
        return (x.expand(3, 5) * y.expand(3, 5) * z).sum(1)

    assert sizes(function, (3, 1), (3, 1), (3, 5)) == {}
    assert sizes(function, (3, 5), (3, 1), (3, 5)) == {CONTRACTION: 3 * 5}


def test_an_index_of_size_one_is_none_of_those_that_a_view_runs_over():
    assert sizes(lambda x, y: (x * y).view(2, 15).sum(1), (2, 3, 1, 5), (2, 1, 1, 1)) == {}


@pytest.mark.parametrize(
    "function, shapes, macs",
    [
        # of two inputs, each with a sign of its own
        (lambda x, y, v, w, c: (c + (-x) * v) + (-y) * w, [(5, 5)] * 5, 2 * 25),
        # of one input at two places, with what is made in two ways
        (
            lambda x, v, w, c: (c + x[:, :5] * (v * w)) + x[:, 1:] * v.square(),
            [(5, 6), (5, 5), (5, 5), (5, 5)],
            2 * 25,
        ),
        (lambda x, w, c: (c + x[:, :5] * (-w)) + x[:, 1:] * w.triu(), [(5, 6), (5, 5), (5, 5)], 2 * 25),
        (
            lambda x, v, w, c: (c + x[:, :5] * v.index_select(1, PLACES)) + x[:, 1:] * w.gather(1, PLACES.expand(5, 5)),
            [(5, 6), (5, 5), (5, 5), (5, 5)],
            2 * 25,
        ),
    ],
)
def test_products_of_other_pairs_do_not_meet(function, shapes, macs):
    assert sizes(function, *shapes) == {SCALED: macs}


def test_products_of_one_pair_at_other_places_meet():
    assert sizes(lambda x, w, c: (c + x[:, :5] * (-w)) + x[:, 1:] * (-w), (5, 6), (5, 5), (5, 5)) == {CONTRACTION: 50}


def test_what_an_input_is_added_to_in_a_part_is_decided_by_it():
    shapes = [(3, 5)] * 4
    assert sizes(filled, *shapes) == {SCALED: 15}
    assert sizes(filled_and_added_to, *shapes) == {CONTRACTION: 2 * 15}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_that_are_joined_carry_no_index():
    nested = torch.nested.nested_tensor([torch.ones(3, 5), torch.ones(2, 5)])
    assert sizes(lambda x, y: (torch.cat([nested, nested]), (x * y).sum())[1], (3, 5), (3, 5)) == {CONTRACTION: 15}


@pytest.mark.parametrize("copied", [torch.clone, torch.neg, torch.Tensor.double], ids=["clone", "neg", "double"])
def test_a_product_beside_constants_is_no_scaled_addition(copied):
    assert sizes(lambda x, w: copied(torch.zeros(7, 5)) + x * w, (7, 5), (7, 5)) == {}
    assert sizes(lambda x, w: copied(torch.ones(7, 5)) + x * w, (7, 5), (7, 5)) == {}
    assert sizes(lambda x, w: copied(x) + x * w, (7, 5), (7, 5)) == {SCALED: 35}


def test_the_sum_of_constants_is_one():
    def function(y):
        return ((torch.full((3, 5), 2.0) + torch.ones(3, 5)) * y).sum(1)

    assert sizes(function, (3, 5)) == {}


def test_what_a_fused_cell_multiplies_stands_at_its_module():
    model = torch.nn.ModuleDict({"lstm": torch.nn.LSTM(5, 7)})
    model.forward = lambda x: model["lstm"](x)
    (part,) = count_contractions(record(model, (torch.ones(3, 2, 5),))).elementwise
    assert (part.path, part.size) == ("lstm", 2 * 3 * 2 * 7)


def test_a_part_that_is_written_leaves_the_products_of_the_others():
    def written(x, y, z, w):
        state = x * y
        state[:, :2] = (z * w)[:, :2]
        return state

    shapes = [(3, 5)] * 4
    assert sizes(lambda *of: written(*of).sum(0), *shapes) == {CONTRACTION: 2 * 15}
    assert sizes(lambda *of: written(*of) + of[0], *shapes) == {SCALED: 2 * 15}


def test_what_is_added_in_the_call_that_multiplies_is_summed_by_it():
    def found(function, number):
        trace = record(module(function), [torch.ones(7, 5) for _ in range(number)])
        return [(part.call, part.dims) for part in count_contractions(trace).elementwise]

    by = "summed by addcmul"
    assert found(lambda a, b, c, d: torch.addcmul(a * b, c, d).sum(0), 4) == [
        (f"mul, {by}", {"m": 5, "i": 7}),
        (f"addcmul, {by}", {"m": 5, "i": 7}),
    ]
    # what it has added is a sum of products again, and the next one is added to that
    more = found(lambda a, b, c, d, e, f: torch.addcmul(a * b, c, d) + e * f, 6)
    assert more == [(f"mul, {by}", {"m": 35}), (f"addcmul, {by}", {"m": 35}), ("mul, summed by add", {"m": 35})]


def test_outer_products_that_one_call_adds_are_summed_where_their_sum_is():
    def gathered(x, a, b, c, d):
        return torch.zeros(5, 3).index_add(0, PLACES, torch.addcmul(x + a * b, c, d))

    trace = record(module(gathered), [torch.ones(size) for size in ((5, 3), (5, 1), (1, 3), (5, 1), (1, 3))])
    calls = [part.call for part in count_contractions(trace).elementwise]
    assert calls == ["mul, summed by index_add", "addcmul, summed by index_add"]


def test_what_is_joined_of_products_alone_is_a_sum_of_products():
    def joined(a, b, c, d, e, f):
        return torch.cat([a * b, c * d]) + e * f

    shapes = [(7, 5)] * 4 + [(14, 5)] * 2
    assert sizes(joined, *shapes) == {CONTRACTION: 2 * 14 * 5}
    assert sizes(lambda a, b, c, d, e, f: torch.cat([a * b, c + d]) + e * f, *shapes) == {SCALED: (7 + 14) * 5}


def test_what_is_written_in_parts_varies_along_every_index():
    def state(x):
        out = torch.zeros(7, 5)
        out[1:] = x
        return out

    def rows(x, y):
        out = torch.zeros(7, 5)
        for n in range(7):
            out[n] = x[n] * y[n]
        return out

    assert sizes(lambda x, w: (state(x) * w).sum(), (6, 5), (7, 5)) == {CONTRACTION: 7 * 5}
    # a row has the second index alone: along the first, rows are summed as they are
    assert dims_of(lambda x, y: rows(x, y).sum(0), (7, 5), (7, 5)) == [{"m": 5}] * 7
    assert dims_of(lambda x, y: rows(x, y).sum(1), (7, 5), (7, 5)) == [{"m": 1, "i": 5}] * 7
    # only the last of two products in a row is summed
    assert sizes(lambda x, y, w: (rows(x, y) * w).sum(), (7, 5), (7, 5), (7, 5)) == {CONTRACTION: 7 * 5}
