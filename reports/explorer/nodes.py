"""Sizes as data: a sympy expression as nested lists of ``+ * min ceil /``, letters and integers.

A page evaluates them exactly without running text as a program.
"""

from fractions import Fraction
from functools import cache
from typing import Any

import sympy

from headcount.formulas.plan import AXES
from headcount.formulas.symbols import LEGEND

Node = Any
"""An int, a letter, or [operator, operand, …]: ``/`` divides exactly, ``ceil`` divides and rounds up."""

ORDER = {letter: i for i, letter in enumerate([*(row.letter for row in LEGEND), *AXES])}
"""The place of each letter in the legend, then the axes of a plan."""


def node(size: Any) -> Node:
    """Return ``size`` as a node. ValueError unless it is a sum, a product, a quotient, a minimum or a ceiling."""
    return _node(_with_ceilings(size))


def _node(x: sympy.Expr) -> Node:
    """Return a rewritten size as a node."""
    if x.is_Integer:
        return int(x)
    if x.is_Symbol:
        return x.name
    if isinstance(x, sympy.Min):
        return ["min", *sorted(map(_node, x.args), key=str)]
    if x.is_Add:
        return ["+", *map(_node, sorted(x.args, key=_place_in_sum))]
    if isinstance(x, sympy.ceiling):
        return ["ceil", *map(_node, x.args[0].as_numer_denom())]
    if x.is_Pow and x.exp.is_Integer and x.exp > 0:
        return ["*", *[_node(x.base)] * int(x.exp)]
    above, below = x.as_numer_denom()
    if below != 1:
        return ["/", _node(above), _node(below)]
    if x.is_Mul:
        return ["*", *map(_node, sorted(x.args, key=_first_letter))]
    raise ValueError(f"{x} is no sum, product, quotient, minimum or ceiling")


@cache
def factors(size: Any) -> tuple[Fraction, list[Node]]:
    """Return a product as its coefficient and its factors, in the legend's order; a power is repeated."""
    size = _with_ceilings(size)
    coefficient, rest = (sympy.factor(size) if size.has(sympy.Add) else size).as_coeff_Mul()
    found: list[Node] = []
    for part in sorted(() if rest == 1 else sympy.Mul.make_args(rest), key=_first_letter):
        base, power = part.as_base_exp()
        if base.is_Add and base.could_extract_minus_sign():
            base, coefficient = -base, coefficient * (-1) ** power
        found += [_node(base)] * int(power)
    return Fraction(int(coefficient.p), int(coefficient.q)), found


def _first_letter(part: sympy.Expr) -> int:
    """Return the place in the legend of the first letter of a term or factor; -1 for a number."""
    return min((ORDER[letter.name] for letter in part.free_symbols), default=-1)


def _place_in_sum(part: sympy.Expr) -> tuple[bool, bool, int]:
    """Return a key that sorts terms by letter, then numbers, then what is subtracted."""
    return part.could_extract_minus_sign(), part.is_Number, _first_letter(part)


def _with_ceilings(size: Any) -> sympy.Expr:
    """Return ``size`` with ceilings, which formulas/ write as negative floors."""
    return sympy.sympify(size, strict=True).replace(sympy.floor, lambda x: -sympy.ceiling(-x))
