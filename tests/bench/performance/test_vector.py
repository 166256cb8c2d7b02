"""Sizes of many candidates at once give each candidate the result of its own integers."""

from fractions import Fraction
from itertools import product
from math import ceil, floor

import numpy as np
import pytest

from headcount.bench.performance.vector import Vector, evaluate
from headcount.formulas.ledger import divide, least

SIZES = list(product((1, 2, 3, 5, 128, 129), (1, 2, 4, 128, 2**20)))


def by_each(function):
    return [float(function({"a": a, "b": b})) for a, b in SIZES]


def at_once(function):
    a, b = zip(*SIZES, strict=True)
    return evaluate(function, {"a": np.array(a), "b": np.array(b)}).tolist()


@pytest.mark.parametrize("function", [
    lambda s: 3 * s["a"] ** 2 * s["b"] - s["a"] + 7, lambda s: 7 - s["a"], lambda s: -(-s["a"] // s["b"]),
    lambda s: 1000 // s["a"], lambda s: s["a"] % s["b"], lambda s: s["a"] / s["b"], lambda s: 12 / s["a"],
    lambda s: s["a"] / 4.0 + 1, lambda s: 2.5 * s["a"], lambda s: divide(s["a"] * s["b"], s["b"]),
    lambda s: ceil(Fraction(3, 7) * s["a"] * s["b"]), lambda s: floor(s["a"] * Fraction(5, 3) + Fraction(1, 2)),
    lambda s: ceil(s["a"]), lambda s: floor(2.5 * s["a"]), lambda s: s["a"] / 2 + s["b"] / 3,
    lambda s: least(s["a"], s["b"]), lambda s: max(s["a"], s["b"], 100), lambda s: sum([s["a"], s["b"]]),
    lambda s: 1 if s["a"] == s["b"] else s["a"], lambda s: s["b"] if s["a"] != 3 and s["b"] >= 4 else 0,
    lambda s: s["a"] if s["a"] - 1 else 99, lambda s: 5,
    lambda s: next((width for width in (2, 64, 256) if s["a"] <= width), 0),
    lambda s: s["a"] if s["a"] / s["b"] < 1.0 else s["b"] if s["a"] > s["b"] else 0,
])  # fmt: skip
def test_each_candidate_has_its_own_result(function):
    assert at_once(function) == by_each(function)


def test_larger_is_of_each_pair():
    one, other = Vector(np.array([1, 6])), Vector(np.array([4.0, 5.0]))
    assert one.larger(other).values.tolist() == [4, 6] and one.larger(2.0).values.tolist() == [2, 6]


def test_numbers_above_63_bits_are_exact():
    def large(sizes):
        return (3**30 * sizes["b"] ** 3 + 1) // 3**30 - sizes["b"] ** 2 + 2**62 + 2**62

    assert at_once(large) == by_each(large)


def test_decisions_are_of_each_candidate_above_63_bits():
    def decide(sizes):
        return sizes["a"] if sizes["b"] ** 4 > 2**70 else 0

    assert at_once(decide) == by_each(decide)
