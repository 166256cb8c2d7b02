"""Parse budgets and ranges, and select the candidates within budgets."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from math import ceil, floor

import numpy as np

from headcount.bench.budget.candidates import Candidates
from headcount.bench.errors import UsageError
from headcount.bench.variants.variant import Variant
from headcount.models.configs.numbers import parse_int
from headcount.models.configs.suggest import choices

UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
NAMES = {"macs": "MACs", "params": "parameters", "active_params": "active parameters", "kv_bytes": "cache bytes"}
"""The metrics in words."""
MOST_SIZES = 10_000
"""Limit of the sizes of one letter; a model is built for each."""


@dataclass(frozen=True)
class Bound:
    """Integers from ``low`` to ``high``, both included."""

    low: int
    high: int

    def holds(self, values: np.ndarray) -> np.ndarray:
        """Return the mask of the values within the bound."""
        return (values >= self.low) & (values <= self.high)

    def distance(self, values: np.ndarray) -> np.ndarray:
        """Return the distance of values outside the bound; 0 and less within."""
        return np.maximum(self.low - values, values - self.high)

    def nearest(self, values: np.ndarray) -> int:
        """Return the value with the least distance."""
        return int(values[np.argmin(self.distance(values))])

    def text(self) -> str:
        """Return the bound in words."""
        return f"{self.low:,} to {self.high:,}" if self.low else f"at most {self.high:,}"


def parse(text: str) -> Bound:
    """Return the bound of ``628M`` (at most), ``1.1G:1.2G`` or ``64Mi``; raise UsageError for any other text."""
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
    """Return the bound of the values within the share ``tolerance`` of ``value``."""
    return Bound(ceil(value * (1 - tolerance)), floor(value * (1 + tolerance)))


def feasible(found: Candidates, bounds: Mapping[str, Bound]) -> np.ndarray:
    """Return the mask of candidates within all bounds; raise UsageError with the nearest value where there is none."""
    within = {metric: bound.holds(found.costs[metric]) for metric, bound in bounds.items()}
    everything = np.ones(len(found), dtype=bool)
    mask = np.logical_and.reduce([everything, *within.values()])
    if mask.any():
        return mask
    for metric, bound in bounds.items():
        if not within[metric].any():
            raise UsageError(_nearest(metric, bound, found.costs[metric], ""))
    for metric, bound in bounds.items():
        others = np.logical_and.reduce([everything, *(mask for name, mask in within.items() if name != metric)])
        if others.any():
            raise UsageError(_nearest(metric, bound, found.costs[metric][others], " within the other budgets"))
    # The nearest candidate: the one whose largest miss of a budget, as a share, is least.
    missed = [np.maximum(0, b.distance(found.costs[m])) / np.maximum(1, found.costs[m]) for m, b in bounds.items()]
    at = int(np.argmin(np.maximum.reduce(missed)))
    nearest = ", ".join(f"{int(found.costs[metric][at]):,} {NAMES[metric]}" for metric in bounds)
    raise UsageError(f"no candidate meets all budgets, nor all but one of them; the nearest has {nearest}")


def _nearest(metric: str, bound: Bound, values: np.ndarray, where: str) -> str:
    return f"no candidate has {bound.text()} {NAMES[metric]}{where}; the nearest is {bound.nearest(values):,}"


def parse_range(text: str, variant: Variant) -> tuple[str, tuple[int, ...]]:
    """Return a letter and its sizes from ``K=4``, ``K=1,2,4``, ``K=1:64`` or ``K=8:64:8`` (both ends included)."""
    letter, _, sizes = text.partition("=")
    if letter not in variant.search.letters:
        raise UsageError(f"unknown letter {letter!r}; {choices(letter, variant.search.letters)}")
    try:
        values = (
            _between(*map(parse_int, sizes.split(":")))
            if ":" in sizes
            else {parse_int(part) for part in sizes.split(",")}
        )
    except (ValueError, TypeError):
        raise UsageError(f"malformed range {text!r}; write K=4, K=1,2,4, K=1:64 or K=8:64:8") from None
    first = sorted(islice(values, MOST_SIZES + 1))
    if len(first) > MOST_SIZES:
        raise UsageError(f"the range {text!r} holds more than {MOST_SIZES:,} sizes; take larger steps")
    least = variant.search.letters[letter].least
    if not first or first[0] < least:
        raise UsageError(f"the range {text!r} must hold sizes of at least {least}")
    return letter, tuple(first)


def _between(low: int, high: int, step: int = 1) -> range:
    if step < 1:
        raise ValueError(step)
    return range(low, high + 1, step)


def parse_ranges(texts: Sequence[str], variant: Variant, all_integers: bool) -> dict[str, Sequence[int]]:
    """Return the sizes of every letter: those of ``texts``, else all integers, else hardware-friendly ones."""
    given = dict(parse_range(text, variant) for text in texts)
    return {
        letter: given.get(letter, known.any_size if all_integers else known.friendly)
        for letter, known in variant.search.letters.items()
    }
