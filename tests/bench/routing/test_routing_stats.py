"""Shares and pointwise mutual information of a routing, counted by hand."""

from collections import Counter
from fractions import Fraction

from headcount.bench.routing.stats import LayerRouting, grouped, pmi, shares, top_tokens
from headcount.bench.variants.variant import variant

CHOSEN = [Counter(a=3, b=1), Counter(b=4), Counter()]


def test_shares_sum_to_one_or_zero():
    assert shares([3, 5, 0]) == [Fraction(3, 8), Fraction(5, 8), 0]
    assert shares([0, 0]) == [0, 0]


def test_pmi_is_the_ratio_to_independence():
    values = pmi(CHOSEN)
    # p(a, 0) = 3/8, p(a) = 3/8, p(0) = 4/8
    assert values[0] == {"a": Fraction(2), "b": Fraction(1 * 8, 5 * 4)}
    assert values[1] == {"b": Fraction(4 * 8, 5 * 4)} and values[2] == {}


def test_top_tokens_by_pmi_then_frequency():
    assert top_tokens(CHOSEN, 1) == [[("a", Fraction(2))], [("b", Fraction(8, 5))], []]
    assert top_tokens(CHOSEN, 5, min_count=4) == [[("b", Fraction(2, 5))], [("b", Fraction(8, 5))], []]
    equal = [Counter(x=1, y=2), Counter(z=3)]
    assert [token for token, _ in top_tokens(equal, 5)[0]] == ["y", "x"]


def test_groups_hold_the_same_choices():
    assert grouped(CHOSEN, {"a": "A", "b": "A"}.get) == [Counter(A=4), Counter(A=4), Counter()]


def test_a_layer_counts_tokens_choices_and_macs():
    layer = LayerRouting("x", variant("moa").routed, 3, 2)
    layer.add([7, 7], [[0, 2], [0, 1]], Fraction(13))
    layer.add([5], [[2, 1]], Fraction(1, 2))
    assert layer.counts == [2, 2, 2] and layer.tokens == 3
    assert layer.chosen[0] == Counter({7: 2}) and layer.chosen[2] == Counter({7: 1, 5: 1})
    assert layer.expert_macs == [Fraction(26), Fraction(27, 2), Fraction(27, 2)]
    assert layer.shares == [Fraction(1, 3)] * 3
