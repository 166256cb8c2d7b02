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
def test_norm_of_order_two_is_a_square(norm):
    assert sizes(lambda a: norm(a, 2), (7, 5)) == {SQUARE: 35}
    assert sizes(lambda a: norm(a, 1), (7, 5)) == sizes(lambda a: norm(a, 3), (7, 5)) == {}


SPREADS = {"var": torch.var, "std": torch.std, "both": torch.var_mean, "std and mean": torch.std_mean}


@pytest.mark.parametrize("spread", SPREADS.values(), ids=SPREADS)
def test_variance_is_a_square(spread):
    assert sizes(lambda a: spread(a, 1), (7, 5)) == {SQUARE: 35}
    assert sizes(lambda a: spread(a, 1, correction=0), (7, 1)) == {SQUARE: 7}
    # of one number there is nothing to multiply and add
    assert sizes(lambda a: spread(a, 0, correction=0), (1,)) == {}
    assert sizes(lambda a: spread(a, 0, correction=0), (2,)) == {SQUARE: 2}


def test_mse_loss_is_a_square():
    wide = torch.ops.aten.mse_loss
    assert sizes(wide, (7, 5), (7, 5)) == sizes(wide, (7, 5), (5,)) == sizes(wide, (5,), (7, 5)) == {SQUARE: 35}


@pytest.mark.parametrize(("how", "size"), [("sum", 13 * 11), ("mean", 13 * 11), ("prod", 0), ("amax", 0), ("amin", 0)])
def test_scatter_reduce(how, size):
    def gathered(y, g, i):
        places = i[:, None].expand(13, 11)
        return torch.zeros(7, 11).scatter_reduce(0, places, y * g, reduce=how)

    assert sizes(gathered, (13, 11), (13, 1), index(13, 7)) == ({CONTRACTION: size} if size else {})


def test_embedding_gradient():
    def looked_up(table, places, v, w):
        return torch.ops.aten.embedding_dense_backward(v * w, places, 3, -1, False)

    assert sizes(looked_up, (3, 11), index(13, 3), (13, 11), (13, 1)) == {CONTRACTION: 13 * 11}


def test_unfold_backward():
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
def test_pool_sums_over_places(pool, places):
    shape = (2, 3, 5, 7, 11)[: 2 + places]
    over = 5 * 7 * (11 if places == 3 else 1)
    assert dims_of(lambda x, w: pool(x * w), shape, shape) == [{"m": 2 * 3, "i": over}]
    # what is behind a pool is a value of its own
    assert dims_of(lambda x, w: pool(x * w).sum(1), shape, shape) == [{"m": 2 * 3, "i": over}]
