"""What each way hands on of the products that a value is made of: to a sum behind it, and to what stands beside it."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from headcount.bench.contractions.count import count_contractions
from headcount.bench.contractions.elementwise import CONTRACTION, SCALED
from headcount.bench.trace.record import record
from tests.bench.contractions.test_elementwise import sizes

HANDED_ON = {
    "clone": torch.clone,
    "neg": torch.neg,
    "masked": lambda x: x.masked_fill(torch.ones(7, 5) < 0, 0),
    "moved": lambda x: x.t().t(),
    "copied into": lambda x: torch.empty(7, 5).copy_(x),
    "summed over one": lambda x: x[None].sum(0),
    "cumulated": lambda x: x[None].cumsum(0)[0],
}


@pytest.mark.parametrize("hand", HANDED_ON.values(), ids=HANDED_ON)
def test_products_are_added_to_products_behind_each_way(hand):
    assert sizes(lambda a, b, c, d: hand(a * b) + c * d, *[(7, 5)] * 4) == {CONTRACTION: 2 * 35}
    assert sizes(lambda a, b, c, d: hand(a) + c * d, *[(7, 5)] * 4) == {SCALED: 35}


@pytest.mark.parametrize("hand", HANDED_ON.values(), ids=HANDED_ON)
def test_products_of_one_pair_at_other_places_meet_behind_each_way(hand):
    def taps(x, w, c):
        return hand(c + x[:, :5] * w) + x[:, 1:] * w

    assert sizes(taps, (7, 6), (7, 5), (7, 5)) == {CONTRACTION: 2 * 35}


@pytest.mark.parametrize("hand", HANDED_ON.values(), ids=HANDED_ON)
def test_a_product_beside_something_else_is_scaled_behind_each_way(hand):
    assert sizes(lambda a, b, c: hand(a * b) + c, *[(7, 5)] * 3) == {SCALED: 35}


@pytest.mark.parametrize("hand", HANDED_ON.values(), ids=HANDED_ON)
def test_an_index_that_one_operand_lacks_is_none_behind_each_way(hand):
    assert sizes(lambda a, b: hand(a * b).sum(0), (7, 5), (5,)) == {}
    assert sizes(lambda a, b: hand(a * b).sum(1), (7, 5), (5,)) == {CONTRACTION: 35}


@pytest.mark.parametrize("hand", HANDED_ON.values(), ids=HANDED_ON)
def test_a_constant_is_one_behind_each_way(hand):
    assert sizes(lambda y: (hand(torch.full((7, 5), 2.0)) * y).sum(), (7, 5)) == {}
    assert sizes(lambda a, b: hand(torch.full((7, 5), 2.0)) + a * b, (7, 5), (7, 5)) == {}


def test_a_product_summed_over_what_an_operand_lacks_is_one_still():
    gated = (3, 7, 5), (3, 1, 5)
    assert sizes(lambda x, g: (x * g).sum(1), *gated) == {}
    assert sizes(lambda x, g, c: (x * g).sum(1) + c, *gated, (3, 5)) == {SCALED: 3 * 7 * 5}
    found = sizes(lambda x, g, a, b: (x * g).sum(1) + a * b, *gated, (3, 5), (3, 5))
    assert found == {CONTRACTION: 3 * 7 * 5 + 3 * 5}


@pytest.mark.parametrize("dim", [0, 1, 2, -3, -2, -1])
def test_products_that_are_stacked_are_summed_along_the_new_index(dim):
    def summed(over):
        def function(a, b, c, d):
            return torch.stack([a * b, c * d], dim).sum(over)

        return sizes(function, (7, 5), (5,), (7, 5), (5,))

    new = dim % 3
    # of the old ones the first is in one operand alone
    first, second = [axis for axis in range(3) if axis != new]
    assert summed(new) == summed(second) == {CONTRACTION: 2 * 35}
    assert summed(first) == {}


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_products_that_are_joined_are_summed_along_the_index_of_both(dim):
    # which one operand of each product lacks
    lacking = [(5,), (1, 5)] if dim == 0 else [(7, 1), (7, 1)]

    def function(a, b, c, d):
        return torch.cat([a * b, c * d], dim).sum(dim)

    assert sizes(function, (7, 5), lacking[0], (7, 5), lacking[1]) == {CONTRACTION: 2 * 35}


def test_what_the_same_three_last_steps_made_is_told_apart_no_more():
    def taps(first, second):
        return sizes(
            lambda x, v, w, c: (c + x[:, :5] * first(v)) + x[:, 1:] * second(w), (7, 6), (7, 5), (7, 5), (7, 5)
        )

    # so that the states of a loop are the same from the third step on
    assert taps(lambda v: v.sin().exp().tan().neg(), lambda w: w.cos().exp().tan().neg()) == {CONTRACTION: 70}
    assert taps(lambda v: v.sin().tan().neg(), lambda w: w.cos().tan().neg()) == {SCALED: 70}


class Taps(nn.Module):
    """Two rows of a weight on one input, or all of it on two."""

    def __init__(self, rows):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 5) if rows else torch.ones(5))

    def forward(self, x, y, c):
        first, second = self.weight if self.weight.dim() > 1 else (self.weight, self.weight)
        return (c + x * first) + (x if self.weight.dim() > 1 else y) * second


@pytest.mark.parametrize(("rows", "kind"), [(True, CONTRACTION), (False, SCALED)])
def test_parts_of_one_weight_are_taps(rows, kind):
    found = count_contractions(record(Taps(rows), [torch.ones(7, 5)] * 3)).elementwise
    assert [(part.kind, part.size) for part in found] == [(kind, 35), (kind, 35)]


def test_what_is_padded_varies_along_its_index():
    assert sizes(lambda x, w: (F.pad(x.expand(7, 5), (0, 3)) * w).sum(1), (7, 1), (7, 8)) == {CONTRACTION: 7 * 8}


def test_what_an_input_is_written_into_is_decided_by_it():
    def added(x, w, a, b):
        state = torch.full((7, 5), 2.0)
        state[1:] = x
        return state * w + a * b

    assert sizes(added, (6, 5), (7, 5), (7, 5), (7, 5)) == {CONTRACTION: 2 * 35}
