"""Budgets: what may be spent, written as people write it, and the nearest feasible value of one that is too small."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor

import numpy as np

from headcount.bench.budget.candidates import Candidates
from headcount.bench.errors import UsageError

UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
NAMES = {"macs": "MACs", "params": "parameters", "active_params": "active parameters", "kv_bytes": "cache bytes"}
"""The metrics in words."""


@dataclass(frozen=True)
class Bound:
    """Whole numbers from ``low`` to ``high``, both included."""

    low: int
    high: int

    def holds(self, values: np.ndarray) -> np.ndarray:
        """Which values are within."""
        return (values >= self.low) & (values <= self.high)

    def distance(self, values: np.ndarray) -> np.ndarray:
        """How far outside values are; 0 and less within."""
        return np.maximum(self.low - values, values - self.high)

    def nearest(self, values: np.ndarray) -> int:
        """The value that is the least distance outside."""
        return int(values[np.argmin(self.distance(values))])

    def text(self) -> str:
        """The bound in words."""
        return f"{self.low:,} to {self.high:,}" if self.low else f"at most {self.high:,}"


def parse(text: str) -> Bound:
    """A bound from ``628M`` (at most), ``1.1G:1.2G`` or ``64Mi``. UsageError for anything else."""
    low, colon, high = text.rpartition(":")
    bound = Bound(_number(low) if colon else 0, _number(high))
    if bound.low > bound.high:
        raise UsageError(f"the budget {text!r} ends below its beginning")
    return bound


def _number(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,30}(?:\.[0-9]{1,30})?)(k|M|G|T|Ki|Mi|Gi|)B?", text)
    if not match:
        raise UsageError(f"malformed budget {text!r}; write 1200000000, 1.2G, 64Mi or 1.1G:1.2G")
    return int(Decimal(match[1]) * (UNITS | BINARY)[match[2]])


def around(value: int, tolerance: Fraction) -> Bound:
    """Within the share ``tolerance`` of ``value``."""
    return Bound(ceil(value * (1 - tolerance)), floor(value * (1 + tolerance)))


def feasible(found: Candidates, bounds: Mapping[str, Bound]) -> np.ndarray:
    """The mask of candidates within all bounds. UsageError with the nearest feasible value where there is none."""
    within = {metric: bound.holds(found.costs[metric]) for metric, bound in bounds.items()}
    everything = np.ones(len(found), dtype=bool)
    kept = np.logical_and.reduce([everything, *within.values()])
    if kept.any():
        return kept
    for metric, bound in bounds.items():
        if not within[metric].any():
            raise UsageError(_nearest(metric, bound, found.costs[metric], ""))
    for metric, bound in bounds.items():
        others = np.logical_and.reduce(
            [np.ones(len(found), dtype=bool), *(w for m, w in within.items() if m != metric)]
        )
        if others.any():
            raise UsageError(_nearest(metric, bound, found.costs[metric][others], " within the other budgets"))
    # By the budget that it misses by the largest share.
    missed = [np.maximum(0, b.distance(found.costs[m])) / np.maximum(1, found.costs[m]) for m, b in bounds.items()]
    at = int(np.argmin(np.maximum.reduce(missed)))
    nearest = ", ".join(f"{int(found.costs[metric][at]):,} {NAMES[metric]}" for metric in bounds)
    raise UsageError(f"no candidate meets all budgets, nor all but one of them; the nearest has {nearest}")


def _nearest(metric: str, bound: Bound, values: np.ndarray, where: str) -> str:
    return f"no candidate has {bound.text()} {NAMES[metric]}{where}; the nearest is {bound.nearest(values):,}"
