"""Simplify the guards of a run with symbolic sizes to the conditions under which its closed form holds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import permutations, product
from math import lcm, prod
from pathlib import Path

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeGuard
from torch.utils._sympy.functions import CleanDiv, FloorDiv, IntTrueDiv, Max, Mod, PythonMod

from headcount import bench
from headcount.formulas.symbols import symbol

_REMAINDERS = (Mod, PythonMod)
ROUNDED = (FloorDiv, CleanDiv, *_REMAINDERS)
"""Floor division and remainder."""
_LAYOUT_OF = (Path(torch.__file__).parent, Path(bench.__file__).parent)
"""Folders of comparisons that are not the module's own: torch's and the recorder's."""

MOST_CLASSES = 100
"""The most residue classes in which a comparison is checked."""


@dataclass(frozen=True)
class Domain:
    """Where a run with symbols holds.

    ``conditions`` are the module's, ``layout`` the comparisons by which torch chose memory layouts.
    """

    conditions: tuple[sympy.Basic, ...] = ()
    layout: tuple[sympy.Basic, ...] = ()

    def holds_at(self, sizes: Mapping[str, int]) -> bool:
        """Return whether these sizes decide every comparison as the run did."""
        values = {symbol(name): sympy.Integer(size) for name, size in sizes.items()}
        return all(guard.xreplace(values) == sympy.true for guard in (*self.conditions, *self.layout))


def simplify_guards(
    guards: Iterable[ShapeGuard], names: Mapping[sympy.Basic, sympy.Symbol]
) -> tuple[Domain, dict[sympy.Basic, sympy.Expr]]:
    """Return the domain in the symbols ``names``, without guards that hold for all positive integers.

    The second result maps a // b to a / b wherever a guard states that b divides a.
    """
    found = [(guard, guard.expr.subs(names).replace(IntTrueDiv, lambda a, b: a / b)) for guard in guards]
    exact: dict[sympy.Basic, sympy.Expr] = {}
    integers: dict[sympy.Basic, sympy.Expr] = {}
    for _, expression in found:
        if _divides(expression):
            a, b = expression.lhs.args
            quotient = value = sympy.cancel((a / b).xreplace(exact).xreplace(integers))
            if sympy.denom(value) != 1:
                quotient = sympy.Dummy(f"{a}/{b}", positive=True, integer=True)
                integers[quotient] = value
            exact |= {rounded(a, b): quotient for rounded in (FloorDiv, CleanDiv)}
    multiples = _multiples(expression.xreplace(exact).xreplace(integers) for _, expression in found)
    conditions: dict[sympy.Basic, None] = {}
    layout: dict[sympy.Basic, None] = {}
    for guard, expression in found:
        left = _simplify(expression.xreplace(exact), multiples)
        if _is_layout(guard, left):
            layout[left.xreplace(integers)] = None
        else:
            conditions[_simplify(left.xreplace(integers), multiples)] = None
    conditions.pop(sympy.true, None)
    layout.pop(sympy.true, None)
    for guard in tuple(conditions):
        # one by one, so that one of two equivalent conditions stays
        if _is_implied(guard, [other for other in conditions if other != guard]):
            del conditions[guard]
    quotients = {rounded: quotient.xreplace(integers) for rounded, quotient in exact.items()}
    return Domain(tuple(conditions), tuple(layout)), quotients


def _divides(guard: sympy.Basic) -> bool:
    return isinstance(guard, sympy.Eq) and guard.rhs == 0 and isinstance(guard.lhs, _REMAINDERS)


def _multiples(guards: Iterable[sympy.Basic]) -> dict[sympy.Symbol, int]:
    """Return the integers that divide a size according to the guards."""
    found: dict[sympy.Symbol, int] = {}
    for a, b in (guard.lhs.args for guard in guards if _divides(guard)):
        if a.is_Symbol and b.is_Integer:
            found[a] = lcm(found.get(a, 1), int(b))
    return found


def _is_implied(guard: sympy.Basic, others: Iterable[sympy.Basic]) -> bool:
    """Return whether b divides a because it divides a factor of a, or a bound holds because a tighter one does."""
    if _divides(guard):
        a, b = guard.lhs.args
        factors = (other.lhs.args[0] for other in others if _divides(other) and other.lhs.args[1] == b)
        return any(sympy.denom(sympy.cancel(a / factor)) == 1 for factor in factors)
    bound = _nonnegative(guard)
    if bound is None:
        return False
    tighter = map(_nonnegative, others)
    return any(other is not None and sympy.expand(bound - other).is_nonnegative for other in tighter)


def _nonnegative(guard: sympy.Basic) -> sympy.Expr | None:
    """Return the expression that is at least 0 by an inequality of integers; None for any other guard."""
    if not isinstance(guard, sympy.Ge | sympy.Gt | sympy.Le | sympy.Lt):
        return None
    more, less = (guard.lhs, guard.rhs) if isinstance(guard, sympy.Ge | sympy.Gt) else (guard.rhs, guard.lhs)
    return sympy.expand(more - less - (1 if isinstance(guard, sympy.Gt | sympy.Lt) else 0))


def _simplify(guard: sympy.Basic, multiples: Mapping[sympy.Symbol, int]) -> sympy.Basic:
    """Return the guard without positive factors, with a number on the right, or else without minus signs.

    True where it holds for all positive multiples of ``multiples``.
    """
    if not isinstance(guard, sympy.Rel):
        return guard
    if isinstance(guard, sympy.Eq):
        for greatest in guard.atoms(Max):
            # an equation that holds where one argument of a maximum is the greatest states that it is
            for one, other in permutations(greatest.args, 2):
                if sympy.expand((guard.lhs - guard.rhs).xreplace({greatest: one})) == 0:
                    return _simplify(one >= other, multiples)
    if guard.has(*ROUNDED):
        return sympy.true if _holds_in_every_class(guard, {} if _divides(guard) else multiples) else guard
    factors = sympy.Mul.make_args(sympy.factor(guard.lhs - guard.rhs))
    left = sympy.Mul(*(sympy.sign(part) if part.is_number else part for part in factors if not part.is_positive))
    constant, sizes = sympy.expand(left).as_coeff_Add()
    terms = sympy.Add.make_args(sizes)
    if all(term.could_extract_minus_sign() for term in terms):
        return guard.reversedsign.func(-sizes, constant)
    less = sympy.Add(*(-term for term in terms if not constant and term.could_extract_minus_sign()))
    return guard.func(sizes + less, less - constant)


def _holds_in_every_class(guard: sympy.Rel, multiples: Mapping[sympy.Symbol, int]) -> bool:
    """Return whether a comparison with rounded quotients holds in every residue class of its sizes."""
    divisors = [int(part.args[1]) for part in guard.atoms(*ROUNDED) if part.args[1].is_Integer]
    classes = []
    for size in guard.free_symbols:
        multiple = multiples.get(size, 1)
        period = lcm(multiple, *divisors)
        n = sympy.Symbol(f"{size}_n", integer=True, nonnegative=True)
        classes.append([(size, period * n + start) for start in range(multiple, period + 1, multiple)])
    if prod(map(len, classes)) > MOST_CLASSES:
        return False
    return all(_without_rounding(guard.subs(dict(values))) == sympy.true for values in product(*classes))


def _without_rounding(guard: sympy.Basic) -> sympy.Basic:
    guard = guard.replace(lambda part: isinstance(part, ROUNDED), lambda part: _unrounded(type(part), *part.args))
    return guard.func(sympy.expand(guard.lhs - guard.rhs), 0) if isinstance(guard, sympy.Rel) else guard


def _unrounded(rounding: type, a: sympy.Expr, b: sympy.Expr) -> sympy.Expr:
    """Return a // b or a % b without rounding, where a is a multiple of b plus a rest that is provably in 0 … b - 1."""
    a, b = sympy.expand(a), sympy.expand(b)
    if b.is_Integer:
        terms = sympy.Add.make_args(a)
        quotient = sum((term.as_coeff_Mul()[0] // b) * term.as_coeff_Mul()[1] for term in terms)
    else:
        quotient = sympy.div(a, b)[0]
    for candidate in (quotient, quotient - 1):
        rest = sympy.expand(a - candidate * b)
        if candidate.is_integer and rest.is_nonnegative and sympy.expand(b - rest).is_positive:
            return rest if issubclass(rounding, _REMAINDERS) else candidate
    return rounding(a, b)


def holds_from_two(guard: sympy.Basic) -> bool:
    """Return whether a comparison provably holds for all sizes of at least 2."""
    above = {size: sympy.Symbol(f"{size}_n", integer=True, nonnegative=True) + 2 for size in guard.free_symbols}
    shifted = _without_rounding(guard.subs(above))
    if isinstance(shifted, sympy.Ne):
        difference = sympy.expand(shifted.lhs - shifted.rhs)
        return bool(difference.is_positive or difference.is_negative)
    return shifted == sympy.true


def _is_layout(guard: ShapeGuard, simplified: sympy.Basic) -> bool:
    """Return whether torch, not the module, compared sizes with 0, 1 or 2, or for inequality, to choose a layout.

    Orders of sizes, other bounds and equations never count as that, wherever they were decided.
    """
    place = getattr(guard.sloc.framework_loc, "filename", None)
    inside = place is not None and any(folder in Path(place).parents for folder in _LAYOUT_OF)
    if not inside or isinstance(simplified, sympy.Eq) or not isinstance(simplified, sympy.Rel):
        return False
    return isinstance(simplified, sympy.Ne) or any(side.is_number and abs(side) <= 2 for side in simplified.args)


def format_guard(guard: sympy.Basic) -> str:
    """Return a guard as text, a size before the number that it is compared with."""
    if _divides(guard):
        return f"{guard.lhs.args[1]} divides {guard.lhs.args[0]}"
    if not isinstance(guard, sympy.Rel):
        return str(guard)
    guard = guard.reversed if guard.lhs.is_number else guard
    return f"{guard.lhs} {guard.rel_op} {guard.rhs}"
