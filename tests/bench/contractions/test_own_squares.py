"""Operations that square on their own, sums that gather by places, pools: which of their calls hold a product."""

import pytest
import torch
import torch.nn.functional as F

from headcount.bench.contractions.elementwise import CONTRACTION, SQUARE
from tests.bench.contractions.test_elementwise import index, sizes
from tests.bench.contractions.test_followed import dims_of

NORMS = {
    "vector norm": lambda a, order: torch.ops.aten.linalg_vector_norm(a, order),
    "norm": lambda a, order: torch.ops.aten.norm(a, order),
    "norm along": lambda a, order: torch.ops.aten.norm(a, order, [1]),
}


@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)
def test_a_norm_squares_where_its_order_is_two(norm):
    assert sizes(lambda a: norm(a, 2), (7, 5)) == {SQUARE: 35}
    assert sizes(lambda a: norm(a, 1), (7, 5)) == sizes(lambda a: norm(a, 3), (7, 5)) == {}


def test_a_norm_without_an_order_is_of_order_two():
    assert sizes(torch.ops.aten.linalg_vector_norm, (7, 5)) == {SQUARE: 35}
    assert sizes(lambda a: torch.ops.aten.norm(a, None, [1]), (7, 5)) == {SQUARE: 35}


SPREADS = {"var": torch.var, "std": torch.std, "both": torch.var_mean, "std and mean": torch.std_mean}


@pytest.mark.parametrize("spread", SPREADS.values(), ids=SPREADS)
def test_a_variance_squares_whatever_it_takes(spread):
    assert sizes(lambda a: spread(a, 1), (7, 5)) == {SQUARE: 35}
    assert sizes(lambda a: spread(a, 1, correction=0), (7, 1)) == {SQUARE: 7}
    # of one number there is nothing to multiply and add
    assert sizes(lambda a: spread(a, 0, correction=0), (1,)) == {}
    assert sizes(lambda a: spread(a, 0, correction=0), (2,)) == {SQUARE: 2}


def test_a_squared_error_squares_the_larger_of_the_two():
    wide = torch.ops.aten.mse_loss
    assert sizes(wide, (7, 5), (7, 5)) == sizes(wide, (7, 5), (5,)) == sizes(wide, (5,), (7, 5)) == {SQUARE: 35}


def test_two_numbers_are_values_and_one_is_a_factor():
    assert sizes(lambda a, b: (a * b).sum(), (2,), (2,)) == {CONTRACTION: 2}
    assert sizes(lambda a, b: (a * b).sum(), (2,), (1,)) == sizes(lambda a, b: (a * b).sum(), (1,), (2,)) == {}


@pytest.mark.parametrize(("how", "size"), [("sum", 13 * 11), ("mean", 13 * 11), ("prod", 0), ("amax", 0), ("amin", 0)])
def test_what_is_gathered_by_places_is_summed_where_it_is_added(how, size):
    def gathered(y, g, i):
        places = i[:, None].expand(13, 11)
        return torch.zeros(7, 11).scatter_reduce(0, places, y * g, reduce=how)

    assert sizes(gathered, (13, 11), (13, 1), index(13, 7)) == ({CONTRACTION: size} if size else {})


@pytest.mark.parametrize(("how", "size"), [("sum", 7), ("mean", 7), ("max", 0), ("min", 0), ("prod", 0)])
def test_segments_are_summed_where_they_are_added(how, size):
    lengths = torch.tensor([3, 4])
    found = sizes(lambda a, b: torch.segment_reduce(a * b, how, lengths=lengths), (7,), (7,))
    assert found == ({CONTRACTION: size} if size else {})


def test_gradients_of_rows_that_were_looked_up_are_summed():
    def looked_up(table, places, v, w):
        return torch.ops.aten.embedding_dense_backward(v * w, places, 3, -1, False)

    assert sizes(looked_up, (3, 11), index(13, 3), (13, 11), (13, 1)) == {CONTRACTION: 13 * 11}


ADDED_TO = {
    "index_add": lambda start, i, y: start.index_add(0, i, y),
    "scatter_add": lambda start, i, y: start.scatter_add(0, i[:, None].expand(13, 11), y),
    "scatter_reduce": lambda start, i, y: start.scatter_reduce(0, i[:, None].expand(13, 11), y, reduce="sum"),
    "index_put": lambda start, i, y: start.index_put((i,), y, accumulate=True),
}


@pytest.mark.parametrize("add", ADDED_TO.values(), ids=ADDED_TO)
def test_a_product_to_which_others_are_added_is_not_summed(add):
    assert CONTRACTION not in sizes(lambda a, b, y, i: add(a * b, i, y), (7, 11), (7, 1), (13, 11), index(13, 7))


def test_what_windows_are_put_back_together_from_is_summed():
    def windows(x, w):
        return torch.ops.aten.unfold_backward(x * w, [11], 0, 3, 2)

    assert sizes(windows, (5, 3), (5, 3)) == {CONTRACTION: 5 * 3}


POOLS = {
    "adaptive 2d": (lambda x: torch.ops.aten._adaptive_avg_pool2d(x, [1, 2]), 2),
    "2d": (lambda x: F.avg_pool2d(x, 2), 2),
    "adaptive 3d": (lambda x: torch.ops.aten._adaptive_avg_pool3d(x, [1, 1, 2]), 3),
    "3d": (lambda x: F.avg_pool3d(x, 2), 3),
}


@pytest.mark.parametrize(("pool", "places"), POOLS.values(), ids=POOLS)
def test_a_pool_sums_over_its_places(pool, places):
    shape = (2, 3, 5, 7, 11)[: 2 + places]
    over = 5 * 7 * (11 if places == 3 else 1)
    assert dims_of(lambda x, w: pool(x * w), shape, shape) == [{"m": 2 * 3, "i": over}]
    # what is behind a pool is a value of its own
    assert dims_of(lambda x, w: pool(x * w).sum(1), shape, shape) == [{"m": 2 * 3, "i": over}]


def test_a_trace_sums_over_both_indices():
    assert dims_of(lambda x, w: (x * w).trace(), (7, 7), (7, 7)) == [{"m": 1, "i": 49}]
    assert dims_of(lambda x, w: (x * w).mT.mean((-1, 0)), (7, 5), (7, 5)) == [{"m": 1, "i": 35}]


def test_a_running_sum_varies_along_its_index():
    def weighed(x, w):
        return (x.cumsum(1) * w).sum(1)

    assert sizes(weighed, (7, 5), (7, 5)) == {CONTRACTION: 35}
    # of what is the same everywhere too, which a sum is
    assert sizes(lambda x, w: (x.expand(7, 5).cumsum(1) * w).sum(1), (7, 1), (7, 5)) == {CONTRACTION: 35}
    assert sizes(lambda x, w: (x.cumsum(0).expand(7, 5) * w).sum(1), (7, 1), (7, 5)) == {}
    assert sizes(lambda x, w: (x.sum(1, keepdim=True).expand(7, 5) * w).sum(1), (7, 5), (7, 5)) == {}
