"""Fit a polynomial to counts on a grid, by exact differences in exact rationals, and validate it at other points.

Along each size a line of points gives the degree. The polynomial is Newton's, in binomials (x - base) / step over
choose n, whose coefficients are differences of counts at base + step * n: no system is solved, nothing is rounded.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import comb, prod
from typing import Any

import numpy as np
import sympy

from headcount.formulas.symbols import symbol

MAX_DEGREE = 3
"""Limit of the degree in one size."""
LINE = 10
"""Points along one size: the first four fix the degree, the others validate it."""
MOST_POINTS = 300

Count = Callable[[Mapping[str, int]], Mapping[str, Any]]
"""MACs by kind at a point; integers, or expressions in further sizes."""
Point = Mapping[str, int]


class NoPolynomial(Exception):
    """Counts that are no polynomial of degree 3 or less in each size; the message names the first point that is not."""

    def __init__(self, kind: str, point: Point, expected: sympy.Expr, counted: Any) -> None:
        self.kind, self.point, self.expected, self.counted = kind, dict(point), expected, counted
        found = f"{counted:,}" if isinstance(counted, int) else counted
        super().__init__(f"{kind} at {format_point(point)} counts {found}; the points before it would give {expected}")


@dataclass(frozen=True)
class Grid:
    """First point of the grid and distance of neighbouring points, by size."""

    base: Mapping[str, int]
    step: Mapping[str, int]

    def point(self, steps: Mapping[str, int]) -> dict[str, int]:
        """Return the point so many steps from the base."""
        return {name: start + self.step[name] * steps.get(name, 0) for name, start in self.base.items()}

    def outside(self) -> list[dict[str, int]]:
        """Return two points beyond the grid: primes where a step is 1, else a prime number of steps from the base."""
        return [
            {
                name: sympy.nextprime(max(factor * start, factor + 2)) if self.step[name] == 1
                else start + self.step[name] * sympy.nextprime(factor + i)
                for i, (name, start) in enumerate(self.base.items())
            }
            for factor in (3, 5)
        ]  # fmt: skip


def format_point(point: Point) -> str:
    """Return a point as ``T=11 D=5``."""
    return " ".join(f"{name}={size}" for name, size in point.items())


def interpolate(count: Count, grid: Grid) -> tuple[dict[str, sympy.Expr], int, tuple[dict[str, int], ...]]:
    """Return the polynomials of ``count``, the number of fitted points, and the points outside that confirmed them.

    Raises NoPolynomial where there are none. Exceptions of ``count`` pass through.
    """
    by_kind, points = fit_polynomial(count, grid, LINE)
    outside = tuple(grid.outside())
    validate_at(count, by_kind, outside)
    return by_kind, points, outside


def fit_polynomial(count: Count, grid: Grid, line: int) -> tuple[dict[str, sympy.Expr], int]:
    """Return the polynomials of ``count`` on the grid, with ``line`` points along each size, and the number of points.

    Raises NoPolynomial where a line has no polynomial of degree 3 or less.
    """
    known: dict[tuple[int, ...], Mapping[str, Any]] = {}

    def counted(steps: Mapping[str, int]) -> Mapping[str, Any]:
        key = tuple(steps.get(name, 0) for name in grid.base)
        if key not in known:
            known[key] = count(grid.point(steps))
        return known[key]

    degrees = {name: _degree(counted, grid, name, line) for name in grid.base}
    exponents = list(_lower_set(tuple(degrees.values())))
    for exponent in exponents:
        counted(dict(zip(grid.base, exponent, strict=True)))
    kinds = dict.fromkeys(kind for counts in known.values() for kind in counts)
    return {kind: _newton(kind, known, exponents, grid) for kind in kinds}, len(known)


def validate_at(count: Count, by_kind: Mapping[str, sympy.Expr], points: tuple[Point, ...]) -> None:
    """Raise NoPolynomial at the first of ``points`` where a count is not the polynomial's value."""
    for point in points:
        found = count(point)
        for kind in dict.fromkeys((*by_kind, *found)):
            value = by_kind.get(kind, sympy.Integer(0)).subs({symbol(name): size for name, size in point.items()})
            if value != found.get(kind, 0):
                raise NoPolynomial(kind, point, value, found.get(kind, 0))


def _degree(counted, grid: Grid, name: str, line: int) -> int:
    """Return the degree along ``name``: the order of the highest difference that is not 0, over all kinds."""
    counts = [counted({name: n}) for n in range(line)]
    degree = 0
    for kind in dict.fromkeys(kind for one in counts for kind in one):
        values = {(n,): one.get(kind, 0) for n, one in enumerate(counts)}
        differences = [_difference(values, (order,)) for order in range(MAX_DEGREE + 1)]
        for n in range(MAX_DEGREE + 1, line):
            expected = sympy.expand(sum(comb(n, order) * d for order, d in enumerate(differences)))
            if values[n,] != expected:
                raise NoPolynomial(kind, grid.point({name: n}), expected, values[n,])
        degree = max([degree, *(order for order, d in enumerate(differences) if d)])
    return degree


def _difference(values: Mapping[tuple[int, ...], Any], orders: tuple[int, ...]) -> sympy.Expr:
    """Return the difference of ``values`` by steps from the base, of one order along each size."""
    terms = (
        prod((-1) ** (order - n) * comb(order, n) for order, n in zip(orders, steps, strict=True)) * values[steps]
        for steps in product(*(range(order + 1) for order in orders))
    )
    return sympy.expand(sum(terms))


def _lower_set(degrees: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield exponents up to ``degrees``, of the highest total degree with at most MOST_POINTS of them.

    No entry of a ledger has more than a handful of the sizes, and points outside the grid validate the result.
    """
    number_by_total = reduce(np.convolve, ([1] * (degree + 1) for degree in degrees), [1])
    total = np.searchsorted(np.cumsum(number_by_total), MOST_POINTS, side="right") - 1
    return (e for e in product(*(range(degree + 1) for degree in degrees)) if sum(e) <= total)


def _newton(kind: str, known, exponents: list[tuple[int, ...]], grid: Grid) -> sympy.Expr:
    """Return the sum over exponents of the difference there times the product of binomials."""
    values = {e: known[e].get(kind, 0) for e in exponents}
    binomials = [
        [_binomial((symbol(name) - start) / sympy.Integer(grid.step[name]), n) for n in range(MAX_DEGREE + 1)]
        for name, start in grid.base.items()
    ]
    terms = (
        difference * sympy.prod([binomials[axis][n] for axis, n in enumerate(e)])
        for e in exponents
        if (difference := _difference(values, e))
    )
    return sympy.expand(sum((sympy.expand(term) for term in terms), sympy.Integer(0)))


def _binomial(x: sympy.Expr, n: int) -> sympy.Expr:
    return sympy.prod([x - i for i in range(n)]) / sympy.factorial(n)
