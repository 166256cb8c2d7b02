"""The statistics on made-up samples whose answer is known."""

import math
import random

import pytest

from headcount.bench.latency.statistics import Ratio, paired_ratio, verdict


def noisy(base, spread, blocks, seed):
    rng = random.Random(seed)
    return [base * math.exp(rng.gauss(0, spread)) for _ in range(blocks)]


def test_known_difference_is_found():
    base = noisy(1.0, 0.05, 40, seed=1)
    ratio = paired_ratio([0.8 * x * e for x, e in zip(base, noisy(1.0, 0.02, 40, seed=2), strict=True)], base)
    assert ratio.low < ratio.value < ratio.high
    assert ratio.value == pytest.approx(0.8, rel=0.02)
    assert verdict(ratio, Ratio(1.0, 0.99, 1.01)) == "faster"


def test_interval_of_two_blocks():
    """Of two blocks half of the resamples have both, and a quarter each has one of them twice."""
    assert paired_ratio([1.0, 4.0], [1.0, 1.0]) == pytest.approx(Ratio(2.0, 1.0, 4.0))


def test_interval_width():
    """The mean of n logarithms +-s has 95 % of its resamples within 1.96 s / sqrt(n)."""
    ratio = paired_ratio([math.exp(0.01), math.exp(-0.01)] * 200, [1.0] * 400)
    assert [math.log(ratio.low), math.log(ratio.high)] == pytest.approx([-0.00098, 0.00098], rel=0.08)


def test_interval_coverage():
    covered = 0
    for seed in range(100):
        a, b = noisy(1.0, 0.1, 30, seed=2 * seed), noisy(1.0, 0.1, 30, seed=2 * seed + 1)
        ratio = paired_ratio(a, b)
        covered += ratio.low <= 1 <= ratio.high
    assert covered >= 88


@pytest.mark.parametrize("ratio, noise, expected", [
    ((0.90, 0.85, 0.95), None, "faster"),
    ((1.10, 1.05, 1.15), None, "slower"),
    ((0.90, 0.80, 1.01), None, "no evidence"),
    ((1.10, 1.0, 1.15), None, "no evidence"),
    ((0.90, 0.85, 1.0), None, "no evidence"),
    ((0.985, 0.98, 0.99), None, "no evidence"),
    ((0.90, 0.85, 0.95), (1.0, 0.88, 1.05), "no evidence"),
    ((0.90, 0.85, 0.95), (1.0, 0.95, 1.05), "faster"),
])  # fmt: skip
def test_verdict(ratio, noise, expected):
    assert verdict(Ratio(*ratio), noise and Ratio(*noise)) == expected
