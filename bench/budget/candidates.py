"""Enumerate the candidates of a search, and compute their costs from closed forms over whole arrays."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import reduce

import numpy as np

from headcount.bench.accounts import Assumptions, NoAccount, kv_bytes
from headcount.bench.case import Case, Config, layers_of, with_attention
from headcount.bench.errors import UsageError
from headcount.bench.variants.variant import Variant
from headcount.formulas.ledger import Size
from headcount.formulas.symbols import symbol
from headcount.models.configs.base import ConfigError
from headcount.models.configs.numbers import whole_bytes

METRICS = ("macs", "params", "active_params", "kv_bytes")
WORDS = {metric.replace("_", "-"): metric for metric in METRICS}
"""Metric of each word in options."""
MOST = 10_000_000
"""Limit of the candidates: each takes about 150 bytes."""


def costs(case: Case, given: Assumptions, sizes: Mapping[str, Size] | None = None) -> dict[str, Size]:
    """Return MACs, parameters, active parameters and, for a model that decodes, the cache bytes of one context.

    ``sizes`` replaces letters of the closed form by integers or symbols. Raises UsageError for a part of a byte.
    """
    case = replace(case, sizes=sizes or {})
    found = {metric: getattr(case.ledger, metric) for metric in ("macs", "params", "active_params")}
    try:
        cached = kv_bytes(case, given)
    except NoAccount:
        return found
    try:
        # symbols have values later
        return {**found, "kv_bytes": whole_bytes(cached) if isinstance(cached, Fraction) else cached}
    except ValueError as reason:
        raise UsageError(f"the cache of a candidate: {reason}; give ranges of even sizes") from None


def candidates(variant: Variant, ranges: Mapping[str, Sequence[int]], case: Case, given: Assumptions) -> np.ndarray:
    """Return all valid points of ``ranges`` in the model of ``case``, which has the variant's example attention.

    The array has a field for each letter, then one for each metric. Counts are exact. Raises UsageError where one could
    exceed 63 bits, where no point is valid, and for more than MOST points.
    """
    config = case.config
    largest = costs(case, given, {letter: max(sizes) for letter, sizes in ranges.items()})
    if max(largest.values()) >= 2**63:
        raise UsageError("the largest candidate's counts do not fit into 63 bits; give smaller ranges")
    # The points of letters that depend on one another are one axis, every other letter is an axis of its own: an
    # entry's array has only the axes of its letters.
    coupled = _coupled_points(variant, {letter: ranges[letter] for letter in variant.search.coupled}, config)
    free = [letter for letter in ranges if letter not in coupled]
    number = math.prod((len(coupled[variant.search.coupled[0]]), *(len(ranges[letter]) for letter in free)))
    if number > MOST:
        raise UsageError(f"{number:,} candidates are more than {MOST:,}; give smaller ranges")
    valid = [_valid_sizes(variant, letter, ranges[letter], config) for letter in free]
    _, *axes = np.ix_([0], *(np.array(sizes, dtype=np.int64) for sizes in valid))
    parts = []
    for mask, fixed in _cases(variant.search.cases, coupled):
        points = {letter: sizes[mask].reshape(-1, *[1] * len(free)) for letter, sizes in coupled.items()}
        sizes = {**points, **dict(zip(free, axes, strict=True))}
        forms = costs(case, given, {letter: fixed.get(letter, symbol(letter)) for letter in sizes})
        columns = {**sizes, **{metric: _evaluate(form, sizes) for metric, form in forms.items()}}
        names = (*ranges, *forms)
        part = np.empty(np.broadcast_shapes(*map(np.shape, columns.values())), [(name, np.int64) for name in names])
        for name in names:
            part[name] = columns[name]
        parts.append(part.ravel())
    return np.concatenate(parts)


def _cases(
    cases: Mapping[str, tuple[int, ...]], points: Mapping[str, np.ndarray]
) -> Iterator[tuple[np.ndarray, dict[str, int]]]:
    """Yield masks of points at which the closed form is one polynomial, with the letters that have one size there."""
    every = np.ones(len(next(iter(points.values()))), dtype=bool)
    for sizes in itertools.product(*((*sizes, None) for sizes in cases.values())):
        mask = every
        for (letter, special), size in zip(cases.items(), sizes, strict=True):
            mask = mask & (~np.isin(points[letter], special) if size is None else points[letter] == size)
        if mask.any():
            yield mask, {letter: size for letter, size in zip(cases, sizes, strict=True) if size is not None}


def _evaluate(form: Size, sizes: Mapping[str, np.ndarray]) -> Size | np.ndarray:
    """Evaluate a polynomial with rational coefficients exactly at all points.

    Raises sympy's CoercionFailed for any other expression, and UsageError where a value is no integer: part of a byte.
    """
    # loaded where candidates are searched, and not for parallel plans
    import sympy

    divisor, whole = sympy.Poly(form, *map(symbol, sizes), domain=sympy.QQ).clear_denoms(convert=True)
    total = 0
    for powers, coefficient in whole.terms():
        factors = (points**n for points, n in zip(sizes.values(), powers, strict=True) if n)
        total = total + reduce(np.multiply, factors, int(coefficient))
    if np.any(total % int(divisor)):
        raise UsageError("the cache of a candidate is no whole number of bytes; give ranges of even sizes")
    return total // int(divisor)


def _coupled_points(variant: Variant, ranges: Mapping[str, Sequence[int]], config: Config) -> dict[str, np.ndarray]:
    """Return the points of coupled letters that meet the conditions."""
    if (number := math.prod(map(len, ranges.values()))) > MOST:
        raise UsageError(f"{number:,} points of {', '.join(ranges)} are more than {MOST:,}; give smaller ranges")
    axes = np.ix_(*(np.array(sizes, dtype=np.int64) for sizes in ranges.values()))
    conditions = variant.search.conditions(dict(zip(ranges, axes, strict=True)), layers_of(config)[0])
    shape = tuple(len(sizes) for sizes in ranges.values())
    at = np.nonzero(np.broadcast_to(reduce(np.logical_and, conditions.values()), shape))
    if not len(at[0]):
        raise UsageError(f"no point of the ranges exists: {', '.join(conditions)} must hold")
    return {letter: axis.ravel()[i] for letter, axis, i in zip(ranges, axes, at, strict=True)}


def _valid_sizes(variant: Variant, letter: str, sizes: Sequence[int], config: Config) -> list[int]:
    """Return the sizes of a letter that the model accepts."""
    valid, reason = [], None
    for size in sizes:
        try:
            with_attention(config, **variant.fields({letter: size}))
        except ConfigError as error:
            reason = error
        else:
            valid.append(size)
    if not valid:
        raise UsageError(f"no point of the ranges exists: {reason}")
    return valid
