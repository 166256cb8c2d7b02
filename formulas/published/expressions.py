"""Closed forms and relations as text: ``T*d*E + 2*K*T*d*D``, ``moa_macs(E=E + 1) < mha_macs()``.

A text is parsed once into sums, differences, products, exact quotients and powers of whole numbers, of letters, and of
named costs, which may be taken at other letters. Letters are integers, which give numbers, or sympy symbols, which
give the formula. Texts are never run as Python.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Any

from headcount.formulas.ledger import Size, divide

Costs = Mapping[str, Callable[..., Any]]
"""Costs by name, each a function of all letters."""

_Value = Callable[[Mapping[str, Size], Costs], Any]
MOST_BITS = 10_000
"""Largest size of a number; a short text can denote one that exceeds all memory."""


def _bits(number: int | Fraction) -> int:
    """Return the exponent of the largest power of 2 in the numerator or the denominator."""
    return max(abs(number.numerator), number.denominator).bit_length() - 1


def _power(base: Any, exponent: Any) -> Any:
    if not (isinstance(base, (int, Fraction)) and isinstance(exponent, (int, Fraction))):
        return base**exponent
    if not isinstance(exponent, int):
        raise ValueError(f"an exponent of {exponent}; exponents are whole numbers")
    # known before it is computed
    if _bits(base) * abs(exponent) > MOST_BITS:
        raise ValueError(f"a power of more than {MOST_BITS:,} bits")
    return Fraction(base) ** exponent


def _exact(result: Any) -> Any:
    """Return a whole number as an integer. Raises ValueError for a number of more than MOST_BITS."""
    if not isinstance(result, (int, Fraction)):
        return result
    if _bits(result) > MOST_BITS:
        raise ValueError(f"a number of more than {MOST_BITS:,} bits")
    return divide(result, 1)


_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: divide,
    ast.Pow: _power,
}
_COMPARISONS: dict[type, tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Eq: ("==", operator.eq),
    ast.GtE: (">=", operator.ge),
    ast.Gt: (">", operator.gt),
    ast.NotEq: ("!=", operator.ne),
}
OPERATORS = tuple(sign for sign, _ in _COMPARISONS.values())


@dataclass(frozen=True)
class Expression:
    """A parsed ``text``, its ``letters`` and the ``costs`` that it calls."""

    text: str
    letters: frozenset[str]
    costs: frozenset[str]
    _value: _Value = field(compare=False, repr=False)

    def __str__(self) -> str:
        return self.text

    def value(self, letters: Mapping[str, Size], costs: Costs | None = None) -> Any:
        """Return the value at ``letters``. Raises ValueError for an unknown letter or cost, and where there is none."""
        try:
            return self._value(letters, costs or {})
        except RecursionError:
            raise _too_deep(self.text) from None
        except ZeroDivisionError:
            raise ValueError(f"{self.text!r} divides by 0") from None


@dataclass(frozen=True)
class Relation:
    """Two expressions and one of OPERATORS between them."""

    left: Expression
    operator: str
    right: Expression

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"

    @property
    def costs(self) -> frozenset[str]:
        """The costs that either side calls."""
        return self.left.costs | self.right.costs

    def holds(self, letters: Mapping[str, Size], costs: Costs | None = None) -> bool:
        """Return whether the relation holds at integer ``letters``."""
        compare = next(function for sign, function in _COMPARISONS.values() if sign == self.operator)
        return compare(self.left.value(letters, costs), self.right.value(letters, costs))


@cache
def expression(text: str) -> Expression:
    """Parse ``text`` as an expression. Raises ValueError if it is none."""
    return _expression(_parsed(text), text)


@cache
def relation(text: str) -> Relation:
    """Parse ``text`` as a relation. Raises ValueError if it is none."""
    match _parsed(text):
        case ast.Compare(left=left, ops=[sign], comparators=[right]) if type(sign) in _COMPARISONS:
            return Relation(_expression(left, text), _COMPARISONS[type(sign)][0], _expression(right, text))
    raise ValueError(f"{text!r} is no relation {', '.join(OPERATORS[:-1])} or {OPERATORS[-1]} between two sides")


def evaluate(text: str, sizes: Mapping[str, int]) -> int:
    """Return the integer value of sums, differences, products, exact quotients and powers (``**``, ``^``) of sizes.

    Raises ValueError for an unknown name, other syntax, or a value that is not an integer.
    """
    value = expression(text.replace("^", "**")).value(sizes)
    if not isinstance(value, int):
        raise ValueError(f"{text!r} is {value}, not a whole number")
    return value


def _parsed(text: str) -> ast.expr:
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{text!r} is no expression: {error.msg}") from error
    except (RecursionError, MemoryError):
        raise _too_deep(text) from None


def _too_deep(text: str) -> ValueError:
    return ValueError(f"{text[:40]!r}… is nested too deep")


def _expression(node: ast.expr, text: str) -> Expression:
    costs = [part.func for part in ast.walk(node) if isinstance(part, ast.Call) and isinstance(part.func, ast.Name)]
    called = set(map(id, costs))
    letters = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and id(part) not in called}
    try:
        value, written = _compiled(node, text), ast.unparse(node)
    except RecursionError:
        raise _too_deep(text) from None
    return Expression(written, frozenset(letters), frozenset(cost.id for cost in costs), value)


def _compiled(node: ast.expr, text: str) -> _Value:
    """Return ``node`` as a function of letters and costs. Raises ValueError if it is no expression."""
    match node:
        case ast.Constant(value=number) if type(number) is int:
            return lambda letters, costs: number
        case ast.Name(id=name):
            return lambda letters, costs: _known(name, letters, text, "size")
        case ast.BinOp(op=sign) if type(sign) in _BINARY:
            combine = _BINARY[type(sign)]
            left, right = (_compiled(side, text) for side in (node.left, node.right))
            return lambda letters, costs: _exact(combine(left(letters, costs), right(letters, costs)))
        case ast.UnaryOp(op=ast.USub()):
            operand = _compiled(node.operand, text)
            return lambda letters, costs: -operand(letters, costs)
        case ast.Call(func=ast.Name(id=name), args=[], keywords=changes) if all(one.arg for one in changes):
            moved = {one.arg: _compiled(one.value, text) for one in changes if one.arg}

            def cost(letters: Mapping[str, Size], costs: Costs) -> Any:
                others = {letter: value(letters, costs) for letter, value in moved.items()}
                return _known(name, costs, text, "cost")(**{**letters, **others})

            return cost
    raise ValueError(f"{text!r} holds {ast.unparse(node)!r}: only + - * / ** of sizes and whole numbers")


def _known(name: str, values: Mapping[str, Any], text: str, what: str) -> Any:
    if name not in values:
        raise ValueError(f"{text!r} needs a {what} for {name}; it has {', '.join(values) or 'none'}")
    return values[name]
