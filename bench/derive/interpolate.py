"""Fit a polynomial to counts on a grid, by exact differences in exact rationals, and validate it at other points.

The polynomial is Newton's, in binomials (x - base) / step over choose n, whose coefficients are differences of counts
at base + step * n: no system is solved, nothing is rounded.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import product
from math import comb, prod
from typing import Any

import numpy as np
import sympy

from headcount.bench.errors import UsageError
from headcount.formulas.symbols import format_sizes, symbol

MAX_DEGREE = 3
"""Limit of the degree in one size."""
LINE = 10
"""Points along one size: the first four fix the degree, the others validate it."""
MOST_POINTS = 300
MOST_SHOWN = 60
"""Characters of an expression in a sentence."""

Count = Callable[[Mapping[str, int]], Mapping[str, Any]]
"""MACs by kind at a point; integers, or expressions in further sizes."""
Steps = tuple[int, ...]
"""Number of steps from the base along each size."""


class NoPolynomial(Exception):
    """Counts that are no polynomial of degree 3 or less in each size; the message names the first point that is not."""


@dataclass(frozen=True)
class Grid:
    """First point of the grid and distance of neighbouring points, by size; of some sizes the ``most`` points along."""

    base: Mapping[str, int]
    step: Mapping[str, int]
    most: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def at(cls, starts: Mapping[str, int], given: Mapping[str, tuple[int, int]]) -> "Grid":
        """Return the grid of ``given`` first points and steps, and of ``starts`` in steps of 1 for the other sizes.

        Raises UsageError for a given size that is not among ``starts``.
        """
        for name in given:
            if name not in starts:
                raise UsageError(f"unknown variable {name!r} in --base; choose from {', '.join(starts)}")
        points = {name: given.get(name, (start, 1)) for name, start in starts.items()}
        return cls(
            {name: start for name, (start, _) in points.items()}, {name: step for name, (_, step) in points.items()}
        )

    def along(self, names: Sequence[str]) -> "Grid":
        """Return the grid of some of the sizes."""
        parts = (self.base, self.step, self.most)
        return Grid(*({name: size for name, size in of.items() if name in names} for of in parts))

    def point(self, steps: Sequence[int]) -> dict[str, int]:
        """Return the point so many steps from the base."""
        return {name: start + self.step[name] * n for (name, start), n in zip(self.base.items(), steps, strict=True)}

    def number(self, name: str, line: int) -> int:
        """Return how many of the ``line`` points along a size there are."""
        return min(line, self.most.get(name, line))

    def reach(self, line: int) -> str:
        """Return the points along each size in words: how many, the first and the last."""
        ends = {name: start + self.step[name] * (self.number(name, line) - 1) for name, start in self.base.items()}
        lines = [f"{self.number(name, line)} points of {name} from {self.base[name]} to {ends[name]}" for name in ends]
        return f"the fit needs {', '.join(lines)}"

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

    def __str__(self) -> str:
        return "; ".join(f"{name} = {start}, {start + self.step[name]}, …" for name, start in self.base.items())


def fit_polynomial(count: Count, grid: Grid, line: int) -> tuple[dict[str, sympy.Expr], int]:
    """Return the polynomials of ``count`` on the grid by kind, and the number of points.

    Along each size the first four of ``line`` points give the degree, and the others validate it. Raises NoPolynomial
    where a line has no polynomial of degree 3 or less.
    """
    known: dict[tuple[int, ...], Mapping[str, Any]] = {}

    def counted(point: Mapping[str, int]) -> Mapping[str, Any]:
        key = tuple(point.values())
        if key not in known:
            known[key] = count(point)
        return known[key]

    degrees = []
    for axis, name in enumerate(grid.base):
        number = grid.number(name, line)
        steps = [tuple(n if i == axis else 0 for i in range(len(grid.base))) for n in range(number)]
        forms = _newton(counted, grid, steps[: MAX_DEGREE + 1])
        validate_at(counted, forms, map(grid.point, steps))
        degrees.append(max([0, *(sympy.degree(form, symbol(name)) for form in forms.values())]))
    return _newton(counted, grid, list(_lower_set(degrees))), len(known)


def validate_at(count: Count, by_kind: Mapping[str, sympy.Expr], points: Iterable[Mapping[str, int]]) -> None:
    """Raise NoPolynomial at the first of ``points`` where a count is not the polynomial's value."""
    for point in points:
        found = count(point)
        for kind in dict.fromkeys((*by_kind, *found)):
            sizes = {symbol(name): size for name, size in point.items()}
            value, counts = sympy.expand(by_kind.get(kind, sympy.Integer(0)).subs(sizes)), found.get(kind, 0)
            if value != counts:
                where = f"{kind} at {format_sizes(point)}"
                raise NoPolynomial(f"{where} counts {shown(counts)}; the polynomial gives {shown(value)}")


def shown(form: Any) -> str:
    """Return a number with groups of digits, and of a long expression its beginning."""
    if isinstance(form, int | sympy.Integer):
        return f"{int(form):,}"
    text = str(form)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"


def _lower_set(degrees: Sequence[int]) -> Iterator[Steps]:
    """Yield exponents up to ``degrees``, of the highest total degree with at most MOST_POINTS of them.

    No entry of a ledger has more than a handful of the sizes, and points outside the grid validate the result.
    """
    number_by_total = reduce(np.convolve, ([1] * (degree + 1) for degree in degrees), [1])
    total = np.searchsorted(np.cumsum(number_by_total), MOST_POINTS, side="right") - 1
    return (e for e in product(*(range(degree + 1) for degree in degrees)) if sum(e) <= total)


def _newton(count: Count, grid: Grid, exponents: Sequence[Steps]) -> dict[str, sympy.Expr]:
    """Return by kind the sum over exponents of the difference there times the product of binomials."""
    values = {steps: count(grid.point(steps)) for steps in exponents}
    x = [(symbol(name) - start) / sympy.Integer(grid.step[name]) for name, start in grid.base.items()]
    powers = {e: map(sympy.binomial, x, e) for e in exponents}
    binomials = {e: sympy.expand(sympy.expand_func(sympy.Mul(*factors))) for e, factors in powers.items()}
    kinds = dict.fromkeys(kind for counts in values.values() for kind in counts)
    return {kind: sympy.expand(sum(_difference(kind, values, e) * binomials[e] for e in exponents)) for kind in kinds}


def _difference(kind: str, values: Mapping[Steps, Mapping[str, Any]], orders: Steps) -> sympy.Expr:
    """Return the difference of a kind's ``values`` from the base, of one order along each size."""
    terms = (
        prod((-1) ** (order - n) * comb(order, n) for order, n in zip(orders, steps, strict=True))
        * values[steps].get(kind, 0)
        for steps in product(*(range(order + 1) for order in orders))
    )
    return sympy.expand(sum(terms))
