"""Crossovers: the integers between which the difference of two totals changes its sign.

The difference is a polynomial in one letter, whose real roots are isolated exactly.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import sympy


@dataclass(frozen=True)
class Crossover:
    """A change of sign of the difference between ``below`` and ``above``, the next integer.

    ``at_below`` and ``at_above`` are the differences there; one of them is 0 where the two totals are equal.
    """

    below: int
    above: int
    at_below: int
    at_above: int


def crossovers(
    difference: sympy.Expr, letter: sympy.Symbol, least: int = 1, exceptions: Mapping[int, int] | None = None
) -> list[Crossover]:
    """Return every pair of neighbouring integers from ``least`` on between which ``difference`` changes its sign.

    ``exceptions`` are its values at integers at which it is not the polynomial.
    """
    polynomial, exceptions = sympy.Poly(difference, letter), exceptions or {}
    roots = [] if polynomial.is_zero else polynomial.real_roots()
    # at a root that is an integer, or an exception, the sign may change on either side
    near = {int(sympy.floor(root)) for root in roots} | exceptions.keys()

    def value(n: int) -> int:
        return exceptions[n] if n in exceptions else int(polynomial.eval(n))

    pairs = [(n, n + 1) for n in sorted(near | {n - 1 for n in near}) if n >= least]
    found = [Crossover(below, above, value(below), value(above)) for below, above in pairs]
    return [one for one in found if sympy.sign(one.at_below) != sympy.sign(one.at_above)]
