"""Statistics of samples whose answer is known."""

import math

import pytest

from headcount.bench.latency.statistics import Ratio, paired_ratio, verdict


def test_interval_of_two_blocks():
    """Half of the resamples have both blocks, and a quarter each has one of them twice."""
    assert paired_ratio([1.0, 4.0], [1.0, 1.0]) == pytest.approx(Ratio(2.0, 1.0, 4.0))


def test_interval_width():
    """95 % of the resampled means of n logarithms of size s are within 1.96 s / sqrt(n)."""
    ratio = paired_ratio([math.exp(0.01), math.exp(-0.01)] * 200, [1.0] * 400)
    assert [math.log(ratio.low), math.log(ratio.high)] == pytest.approx([-0.00098, 0.00098], rel=0.08)


@pytest.mark.parametrize("ratio, noise, expected", [
    ((0.90, 0.85, 0.95), None, "faster"),
    ((1.10, 1.05, 1.15), None, "slower"),
    ((0.90, 0.80, 1.01), None, "no difference measured"),
    ((1.10, 1.0, 1.15), None, "no difference measured"),
    ((0.90, 0.85, 1.0), None, "no difference measured"),
    ((0.985, 0.98, 0.99), None, "no difference measured"),
    ((0.90, 0.85, 0.95), (1.0, 0.88, 1.05), "no difference measured"),
    ((0.90, 0.85, 0.95), (1.0, 0.95, 1.05), "faster"),
])  # fmt: skip
def test_verdict(ratio, noise, expected):
    assert verdict(Ratio(*ratio), noise and Ratio(*noise)) == expected
