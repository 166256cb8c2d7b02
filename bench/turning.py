"""Where a ranking turns: the integers between which the difference of two totals changes its sign.

The difference is a polynomial in one letter, whose real roots are isolated exactly.
"""

from dataclasses import dataclass

import sympy


@dataclass(frozen=True)
class Turn:
    """The difference has another sign at ``above`` than at ``below``, the integer before it.

    ``at_below`` and ``at_above`` are the differences there; one of them is 0 where the two totals are equal.
    """

    below: int
    above: int
    at_below: int
    at_above: int


def symbol(letter: str) -> sympy.Symbol:
    """``letter`` as a positive integer."""
    return sympy.Symbol(letter, positive=True, integer=True)


def turns(difference: sympy.Expr, letter: sympy.Symbol, least: int = 1) -> list[Turn]:
    """Every pair of neighbouring integers from ``least`` on between which ``difference`` changes its sign."""
    polynomial = sympy.Poly(difference, letter)
    if polynomial.is_zero:
        return []
    found = []
    for root in dict.fromkeys(sympy.floor(root) for root in polynomial.real_roots()):
        # Around a root that is an integer the sign may change on either side of it.
        for below in (int(root) - 1, int(root)):
            low, high = (int(polynomial.eval(n)) for n in (below, below + 1))
            if below >= least and sympy.sign(low) != sympy.sign(high):
                found.append(Turn(below, below + 1, low, high))
    return sorted(dict.fromkeys(found), key=lambda turn: turn.below)
