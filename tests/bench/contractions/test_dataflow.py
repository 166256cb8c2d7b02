"""Products are followed through copies, sums and writes."""

import pytest
import torch

from headcount.bench.contractions.count import count_contractions
from headcount.bench.contractions.elementwise import CONTRACTION, SCALED
from headcount.bench.trace.record import record
from tests.bench.contractions.test_elementwise import sizes
from tests.bench.contractions.written import module


def dims_of(function, *shapes):
    """The sizes of each product, kept and summed."""
    trace = record(module(function), [torch.ones(shape) for shape in shapes])
    return [part.dims for part in count_contractions(trace).elementwise]


def test_sums_over_indices_compose():
    def dims(function):
        return dims_of(function, (3, 5, 7), (5, 7))

    at_once = dims(lambda x, w: (x * w).sum((1, 2)))
    assert at_once == dims(lambda x, w: (x * w).sum(2).sum(1)) == [{"m": 3, "i": 35}]


def test_later_sum_over_common_index():
    assert sizes(lambda x, w: (x * w).sum(2), (3, 5, 7), (5, 1)) == {}
    assert sizes(lambda x, w: (x * w).sum(2).sum(1), (3, 5, 7), (5, 1)) == {CONTRACTION: 3 * 5 * 7}


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.complex64, torch.int64], ids=str)
def test_integers_are_not_counted(dtype):
    trace = record(module(lambda a, b, c, d: a * b + c * d), [torch.ones(7, 5, dtype=dtype) for _ in range(4)])
    found = [part.size for part in count_contractions(trace).elementwise]
    # whole numbers are places and positions
    assert found == ([] if dtype == torch.int64 else [35, 35])


def test_expanded_operands():
    def function(x, y, z):
        return (x.expand(3, 5) * y.expand(3, 5) * z).sum(1)

    assert sizes(function, (3, 1), (3, 1), (3, 5)) == {}
    assert sizes(function, (3, 5), (3, 1), (3, 5)) == {CONTRACTION: 3 * 5}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_joined_nested_tensors():
    nested = torch.nested.nested_tensor([torch.ones(3, 5), torch.ones(2, 5)])
    assert sizes(lambda x, y: (torch.cat([nested, nested]), (x * y).sum())[1], (3, 5), (3, 5)) == {CONTRACTION: 15}


@pytest.mark.parametrize("copied", [torch.clone, torch.neg, torch.Tensor.double], ids=["clone", "neg", "double"])
def test_product_plus_constant_is_not_counted(copied):
    assert sizes(lambda x, w: copied(torch.zeros(7, 5)) + x * w, (7, 5), (7, 5)) == {}
    assert sizes(lambda x, w: copied(torch.ones(7, 5)) + x * w, (7, 5), (7, 5)) == {}
    assert sizes(lambda x, w: copied(x) + x * w, (7, 5), (7, 5)) == {SCALED: 35}


def test_partial_write_leaves_the_rest():
    def written(x, y, z, w):
        state = x * y
        state[:, :2] = (z * w)[:, :2]
        return state

    shapes = [(3, 5)] * 4
    assert sizes(lambda *of: written(*of).sum(0), *shapes) == {CONTRACTION: 2 * 15}
    assert sizes(lambda *of: written(*of) + of[0], *shapes) == {SCALED: 2 * 15}


def test_writes_in_parts():
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
