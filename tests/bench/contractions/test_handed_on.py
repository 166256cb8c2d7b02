"""Products are followed through each operation to later sums and additions."""

import pytest
import torch

from headcount.bench.contractions.elementwise import CONTRACTION, SCALED
from tests.bench.contractions.test_elementwise import sizes

WAYS = {
    "clone": torch.clone,
    "neg": torch.neg,
    "masked": lambda x: x.masked_fill(torch.ones(7, 5) < 0, 0),
    "moved": lambda x: x.t().t(),
    "copied into": lambda x: torch.empty(7, 5).copy_(x),
    "summed over one": lambda x: x[None].sum(0),
    "cumulated": lambda x: x[None].cumsum(0)[0],
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_products_are_followed_through_each_operation(way):
    def taps(x, w, c):
        return way(c + x[:, :5] * w) + x[:, 1:] * w

    square = (7, 5)
    assert sizes(lambda a, b, c, d: way(a * b) + c * d, *[square] * 4) == {CONTRACTION: 2 * 35}
    assert sizes(lambda a, c, d: way(a) + c * d, *[square] * 3) == {SCALED: 35}
    assert sizes(lambda a, b, c: way(a * b) + c, *[square] * 3) == {SCALED: 35}
    assert sizes(taps, (7, 6), square, square) == {CONTRACTION: 2 * 35}
    assert sizes(lambda a, b: way(a * b).sum(0), square, (5,)) == {}
    assert sizes(lambda a, b: way(a * b).sum(1), square, (5,)) == {CONTRACTION: 35}
    assert sizes(lambda y: (way(torch.full(square, 2.0)) * y).sum(), square) == {}
    assert sizes(lambda a, b: way(torch.full(square, 2.0)) + a * b, square, square) == {}


@pytest.mark.parametrize("dim", [0, 1, 2, -3, -2, -1])
def test_stacked_products(dim):
    def summed(over):
        def function(a, b, c, d):
            return torch.stack([a * b, c * d], dim).sum(over)

        return sizes(function, (7, 5), (5,), (7, 5), (5,))

    new = dim % 3
    # of the old ones the first is in one operand alone
    first, second = [axis for axis in range(3) if axis != new]
    assert summed(new) == summed(second) == {CONTRACTION: 2 * 35}
    assert summed(first) == {}
