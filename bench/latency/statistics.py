"""Medians, paired ratios with bootstrap intervals, and verdicts: faster, slower or no difference measured.

A bootstrap interval over few blocks is too narrow, and it does not include a drift that all blocks share. So
implementations are interleaved, and an A/A control gives the noise floor that a difference must exceed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 10_000
CONFIDENCE = 0.95
SEED = 0
"""Seed of the resampling."""
TRUSTED_BLOCKS = 20
"""Fewer blocks are a smoke test, whose figures enter no document."""
LEAST_DIFFERENCE = 0.02
"""A ratio nearer to 1 than this is never called faster or slower."""


@dataclass(frozen=True)
class Ratio:
    """A ratio of times with its bootstrap interval; below 1 the numerator is faster."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """The largest distance of the interval from 1."""
        return max(abs(self.low - 1), abs(self.high - 1))


def quantile(samples: Sequence[float], q: float) -> float:
    """Return the ``q`` quantile with linear interpolation."""
    return float(np.quantile(samples, q))


def paired_ratio(numerator: Sequence[float], denominator: Sequence[float]) -> Ratio:
    """Return the geometric mean of the ratios block by block, with a bootstrap interval over blocks."""
    logs = np.log(np.asarray(numerator) / np.asarray(denominator))
    picks = np.random.default_rng(SEED).integers(len(logs), size=(RESAMPLES, len(logs)))
    return _ratio(np.exp(logs.mean()), np.exp(logs[picks].mean(axis=1)))


def unpaired_ratio(numerator: Sequence[float], denominator: Sequence[float]) -> Ratio:
    """Return the ratio of medians of two separate runs, each resampled on its own."""
    a, b = np.asarray(numerator), np.asarray(denominator)
    rng = np.random.default_rng(SEED)
    return _ratio(np.median(a) / np.median(b), _resampled_medians(a, rng) / _resampled_medians(b, rng))


def median_interval(samples: Sequence[float]) -> Ratio:
    """Return the median of ``samples``, in their unit, with its bootstrap interval."""
    values = np.asarray(samples)
    return _ratio(np.median(values), _resampled_medians(values, np.random.default_rng(SEED)))


def _resampled_medians(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.median(values[rng.integers(len(values), size=(RESAMPLES, len(values)))], axis=1)


def _ratio(value, resampled) -> Ratio:
    low, high = np.quantile(resampled, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Ratio(float(value), float(low), float(high))


def verdict(ratio: Ratio, noise: Ratio | None = None) -> str:
    """Return ``faster`` or ``slower`` where the interval excludes 1 and the ratio exceeds the noise floor and
    LEAST_DIFFERENCE; else ``no difference measured``."""
    threshold = max(LEAST_DIFFERENCE, noise.half_width if noise else 0.0)
    if ratio.low <= 1 <= ratio.high or abs(ratio.value - 1) <= threshold:
        return "no difference measured"
    return "faster" if ratio.value < 1 else "slower"
