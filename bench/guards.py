"""Guards: the comparisons of sizes that a run with symbols decided on its way, told as the domain of its count."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import permutations
from math import lcm
from pathlib import Path

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeGuard
from torch.utils._sympy.functions import CleanDiv, FloorDiv, IntTrueDiv, Max, Mod, PythonMod

_REMAINDERS = (Mod, PythonMod)
ROUNDED = (FloorDiv, CleanDiv, *_REMAINDERS)
_LAYOUT_OF = (Path(torch.__file__).parent, Path(__file__).parent)
"""Where comparisons are made that are not the module's own: torch's, and those of the recorder."""


@dataclass(frozen=True)
class Told:
    """What the guards of a run say: ``domain``, and ``layout``, by which torch chose how tensors lie in memory.

    ``exact`` has a // b as a / b wherever a guard says that b divides a.
    """

    exact: Mapping[sympy.Basic, sympy.Expr]
    domain: tuple[sympy.Basic, ...]
    layout: tuple[sympy.Basic, ...]


def tell(guards: Iterable[ShapeGuard], names: Mapping[sympy.Basic, sympy.Symbol]) -> Told:
    """The guards in the sizes' own ``names``, without what positive integers fulfil anyway."""
    found = [(guard, guard.expr.subs(names)) for guard in guards]
    exact: dict[sympy.Basic, sympy.Expr] = {}
    whole: dict[sympy.Basic, sympy.Expr] = {}
    for _, expression in found:
        if _divides(expression):
            a, b = expression.lhs.args
            quotient = value = sympy.cancel((a / b).xreplace(exact).xreplace(whole))
            if sympy.denom(value) != 1:
                quotient = sympy.Dummy(f"{a}/{b}", positive=True, integer=True)
                whole[quotient] = value
            exact |= {rounded(a, b): quotient for rounded in (FloorDiv, CleanDiv)}
    domain: dict[sympy.Basic, None] = {}
    layout: dict[sympy.Basic, None] = {}
    for guard, expression in found:
        left = _simpler(expression.xreplace(exact))
        if _is_layout(guard, left):
            layout[left.xreplace(whole)] = None
        else:
            domain[_simpler(left.xreplace(whole))] = None
    domain.pop(sympy.true, None)
    layout.pop(sympy.true, None)
    exact = {rounded: quotient.xreplace(whole) for rounded, quotient in exact.items()}
    return Told(exact, tuple(guard for guard in domain if not _follows(guard, domain)), tuple(layout))


def _divides(guard: sympy.Basic) -> bool:
    return isinstance(guard, sympy.Eq) and guard.rhs == 0 and isinstance(guard.lhs, _REMAINDERS)


def _follows(guard: sympy.Basic, others: Iterable[sympy.Basic]) -> bool:
    """Whether b divides a because it divides a factor of it."""
    if not _divides(guard):
        return False
    a, b = guard.lhs.args
    factors = (other.lhs.args[0] for other in others if _divides(other) and other.lhs.args[1] == b)
    return any(factor != a and sympy.denom(sympy.cancel(a / factor)) == 1 for factor in factors)


def _simpler(guard: sympy.Basic) -> sympy.Basic:
    """The guard without positive factors; true where positive integers always fulfil it."""
    guard = guard.replace(IntTrueDiv, lambda a, b: a / b)
    if not isinstance(guard, sympy.Rel):
        return guard
    if isinstance(guard, sympy.Eq):
        for greatest in guard.atoms(Max):
            # an equation that holds where one argument of a maximum is the greatest says that it is
            for one, other in permutations(greatest.args, 2):
                if sympy.expand((guard.lhs - guard.rhs).xreplace({greatest: one})) == 0:
                    return _simpler(one >= other)
    if guard.has(*ROUNDED):
        return sympy.true if _in_every_class(guard) else guard
    factors = sympy.Mul.make_args(sympy.factor(guard.lhs - guard.rhs))
    signed = [factor for factor in factors if not factor.is_positive]
    decided = guard.func(sympy.Mul(*signed), 0)
    if decided in (sympy.true, sympy.false) or not any(factor.free_symbols for factor in factors if factor.is_positive):
        return decided if decided in (sympy.true, sympy.false) else guard
    terms = sympy.Add.make_args(sympy.expand(sympy.Mul(*signed)))
    taken = [term for term in terms if term.could_extract_minus_sign()]
    return guard.func(sum(term for term in terms if term not in taken), -sum(taken))


def _in_every_class(guard: sympy.Rel) -> bool:
    """Whether a comparison in one size, rounded after division by numbers, holds in every residue class."""
    rounded = guard.atoms(*ROUNDED)
    plain = all(part.args[1].is_Integer and not part.args[0].has(*ROUNDED) for part in rounded)
    if len(guard.free_symbols) != 1 or not plain:
        return False
    (size,) = guard.free_symbols
    period = lcm(*(int(part.args[1]) for part in rounded))
    n = sympy.Symbol("n", integer=True, nonnegative=True)
    for start in range(1, period + 1):
        values = {}
        for part in rounded:
            a, b = (arg.subs(size, period * n + start) for arg in part.args)
            if not sympy.Poly(a, n).degree() <= 1:
                return False
            rest = sympy.expand(a).subs(n, 0) % b
            values[part] = rest if isinstance(part, _REMAINDERS) else sympy.expand((a - rest) / b)
        one = guard.xreplace(values).subs(size, period * n + start)
        if one not in (sympy.true, sympy.false):
            one = one.func(sympy.expand(one.lhs - one.rhs), 0)
        if one != sympy.true:
            return False
    return True


def _is_layout(guard: ShapeGuard, simplified: sympy.Basic) -> bool:
    """Whether torch, not the module, compared sizes with a number or for being unequal: how tensors lie in memory.

    Orders of sizes and equations are never taken for that, wherever they were decided.
    """
    place = getattr(guard.sloc.framework_loc, "filename", None)
    inside = place is not None and any(folder in Path(place).parents for folder in _LAYOUT_OF)
    if not inside or isinstance(simplified, sympy.Eq) or not isinstance(simplified, sympy.Rel):
        return False
    return isinstance(simplified, sympy.Ne) or simplified.lhs.is_number or simplified.rhs.is_number


def text(guard: sympy.Basic) -> str:
    """A guard in words and signs."""
    if _divides(guard):
        return f"{guard.lhs.args[1]} divides {guard.lhs.args[0]}"
    return f"{guard.lhs} {guard.rel_op} {guard.rhs}" if isinstance(guard, sympy.Rel) else str(guard)
