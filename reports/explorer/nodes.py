"""Sizes as data: a sympy expression as nested lists of ``+ * min ceil /``, letters and integers, which a page can
evaluate exactly without running text as a program."""

from fractions import Fraction
from typing import Any

import sympy

from headcount.formulas.symbols import LEGEND

Node = Any
"""An int, a letter, or [operator, operand, …]: ``/`` divides exactly, ``ceil`` divides and rounds up."""

ORDER = {row.letter: i for i, row in enumerate(LEGEND)}
"""The place of each letter in the legend."""


def node(size: Any) -> Node:
    """``size`` as a node. ValueError for what is neither a sum, a product, a quotient, a minimum nor a ceiling."""
    x = sympy.sympify(size, strict=True)
    if x.is_Integer:
        return int(x)
    if x.is_Symbol:
        return x.name
    if found := _minimum(x):
        return _times(*found)
    if x.is_Add:
        return ["+", *map(node, sorted(_sorted(x.args), key=lambda part: part.is_Number))]
    if isinstance(x, sympy.ceiling):
        return _ceiling(x.args[0])
    if isinstance(-x, sympy.floor):
        return _ceiling(-(-x).args[0])
    if x.is_Pow and x.exp.is_Integer and x.exp > 0:
        return ["*", *[node(x.base)] * int(x.exp)]
    above, below = x.as_numer_denom()
    if below != 1:
        return ["/", node(above), node(below)]
    if x.is_Mul:
        return ["*", *map(node, _sorted(x.args))]
    raise ValueError(f"{x} is no sum, product, quotient, minimum or ceiling")


def factors(size: Any) -> tuple[Fraction, list[Node]]:
    """A product as its coefficient and its factors, in the legend's order, as often as they stand in it."""
    coefficient, rest = sympy.sympify(size, strict=True).as_coeff_Mul()
    found: list[Node] = []
    for part in _sorted(() if rest == 1 else sympy.Mul.make_args(rest)):
        base, power = part.as_base_exp()
        if least := _minimum(base):
            coefficient *= least[0] ** power
            found += [least[1]] * int(power)
            continue
        if base.is_Add and base.could_extract_minus_sign():
            base, coefficient = -base, coefficient * (-1) ** power
        found += [node(base)] * int(power)
    return Fraction(int(coefficient.p), int(coefficient.q)), found


def _sorted(parts) -> list:
    """Numbers, then letters as the legend has them, then what is made of several; what is subtracted last."""

    def place(part):
        names = [s.name for s in part.free_symbols]
        base = part.as_base_exp()[0]
        if part.could_extract_minus_sign():
            return (2, 0, str(part))
        return (0 if base.is_Symbol or not names else 1, min((ORDER[n] for n in names), default=-1), str(part))

    return sorted(parts, key=place)


def _times(scale, of: Node) -> Node:
    if scale.q != 1:
        return ["/", _times(sympy.Integer(scale.p), of), int(scale.q)]
    return of if scale == 1 else ["*", int(scale), of]


def _ceiling(x) -> Node:
    above, below = x.as_numer_denom()
    return ["ceil", node(above), node(below)]


def _minimum(x) -> tuple[sympy.Rational, Node] | None:
    """The minimum that formulas/ledger.py writes as (a + b - |a - b|) / 2, and how many times ``x`` is that; None where
    it is no minimum."""
    for part in x.args if x.is_Add else ():
        coefficient, rest = part.as_coeff_Mul()
        if isinstance(rest, sympy.Abs) and coefficient < 0:
            both, difference = (x - part) / -coefficient, rest.args[0]
            sides = (node(sympy.expand((both + sign * difference) / 2)) for sign in (1, -1))
            return -2 * coefficient, ["min", *sorted(sides, key=str)]
    return None
