"""Parse budgets and ranges, and select the candidates within budgets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

import numpy as np

from headcount.bench.errors import UsageError
from headcount.bench.variants.variant import Variant
from headcount.models.configs.numbers import parse_amount, parse_int
from headcount.models.configs.suggest import choices

NAMES = {"macs": "MACs", "params": "parameters", "active_params": "active parameters", "kv_bytes": "cache bytes"}
"""The metrics in words."""
MOST_SIZES = 10_000
"""Limit of the sizes of one letter; a model is built for each."""


class NoCandidate(UsageError):
    """No candidate is within the budgets; the message names the nearest one."""


@dataclass(frozen=True)
class Bound:
    """Integers from ``low`` to ``high``, both included."""

    low: int
    high: int

    def text(self) -> str:
        """Return the bound in words."""
        return f"{self.low:,} to {self.high:,}" if self.low else f"at most {self.high:,}"


def parse(text: str, metric: str = "kv_bytes") -> Bound:
    """Return the bound of ``628M`` (at most), ``1.1G:1.2G`` or ``64Mi`` on ``metric``, by default on bytes.

    Raises UsageError for any other text, for bytes of what has none, and for a fraction without a unit.
    """
    low, colon, high = text.rpartition(":")
    bound = Bound(_number(low, metric) if colon else 0, _number(high, metric))
    if bound.low > bound.high:
        raise UsageError(f"the budget {text!r} ends below its beginning")
    return bound


def _number(text: str, metric: str) -> int:
    amount = text.removesuffix("B")
    if text.endswith("B") and not metric.endswith("bytes"):
        raise UsageError(f"{NAMES[metric]} have no bytes; write {amount}, not {text}")
    try:
        return parse_amount(amount)
    except ValueError as error:
        raise UsageError(f"malformed budget {text!r}: {error}; a range is 1.1G:1.2G") from None


def bound_around(value: int, tolerance: Fraction) -> Bound:
    """Return the bound of the values within the share ``tolerance`` of ``value``."""
    return Bound(ceil(value * (1 - tolerance)), floor(value * (1 + tolerance)))


def feasible_mask(found: Mapping[str, np.ndarray], bounds: Mapping[str, Bound]) -> np.ndarray:
    """Return the mask of candidates within all bounds; ``found`` has their costs by metric.

    Raises NoCandidate where there is none, with the candidate whose largest excess over a bound is least.
    """
    of_bounds = [(found[metric], bound.low, bound.high) for metric, bound in bounds.items()]
    mask = np.logical_and.reduce([(costs >= low) & (costs <= high) for costs, low, high in of_bounds])
    if mask.any():
        return mask
    outside = [
        np.maximum(float(low) - costs, costs - float(high)) / np.maximum(1, costs) for costs, low, high in of_bounds
    ]
    nearest = np.argmin(np.maximum.reduce(outside))
    budgets = ", ".join(f"{bound.text()} {NAMES[metric]}" for metric, bound in bounds.items())
    has = ", ".join(f"{found[metric][nearest]:,} {NAMES[metric]}" for metric in bounds)
    raise NoCandidate(f"no candidate has {budgets}; the nearest has {has}")


def parse_range(text: str, variant: Variant) -> tuple[str, Sequence[int]]:
    """Return a letter and its sizes from ``K=4``, ``K=1,2,4``, ``K=1:64`` or ``K=8:64:8`` (both ends included)."""
    letter, _, sizes = text.partition("=")
    if letter not in variant.search.letters:
        raise UsageError(f"unknown letter {letter!r}; {choices(letter, variant.search.letters)}")
    try:
        if ":" in sizes:
            low, high, step = map(parse_int, (sizes if sizes.count(":") > 1 else f"{sizes}:1").split(":"))
            values = range(low, high + 1, step)[: MOST_SIZES + 1]
        else:
            values = sorted(set(map(parse_int, sizes.split(","))))
    except ValueError:
        values = None
    if values is None or (isinstance(values, range) and values.step < 1):
        raise UsageError(f"malformed range {text!r}; write K=4, K=1,2,4, K=1:64 or K=8:64:8") from None
    if len(values) > MOST_SIZES:
        raise UsageError(f"the range {text!r} holds more than {MOST_SIZES:,} sizes; take larger steps")
    least = variant.search.letters[letter].least
    if not values or values[0] < least:
        raise UsageError(f"the range {text!r} must hold sizes of at least {least}")
    return letter, values


def parse_ranges(
    texts: Sequence[str], variant: Variant, all_integers: bool, stated: Mapping[str, int] | None = None
) -> dict[str, Sequence[int]]:
    """Return the sizes of every letter: those of ``texts`` or ``stated``, else all integers, else hardware-friendly
    ones.

    Raises UsageError for a letter that is given twice, and for one that has no sizes unless they are given.
    """
    given: dict[str, Sequence[int]] = {}
    for text in (*(f"{letter}={size}" for letter, size in (stated or {}).items()), *texts):
        letter, sizes = parse_range(text, variant)
        if letter in given:
            raise UsageError(f"{letter} is given twice: {text}")
        given[letter] = sizes
    found = {
        letter: given.get(letter, known.any_size if all_integers else known.friendly)
        for letter, known in variant.search.letters.items()
    }
    for letter in [letter for letter, sizes in found.items() if not sizes]:
        raise UsageError(f"a layer needs its {letter}; add --range {letter}=512, or {letter}=512 to the layer")
    return found
