"""Sizes of many candidates at once: code for one integer size runs on all of them, each with its own result.

Where the code decides by a comparison and candidates differ, they are divided and each part runs by itself, so that no
candidate takes the path of another. Imports no torch.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

MOST = 2**17
"""Candidates that run at once: each takes some kilobytes."""


class _Divided(Exception):
    """A decision in which candidates differ: ``is_true`` of each."""

    def __init__(self, is_true: np.ndarray) -> None:
        super().__init__("candidates differ")
        self.is_true = is_true


class _Comparison:
    """The result of a comparison, of each candidate."""

    def __init__(self, is_true: np.ndarray) -> None:
        self.is_true = is_true.astype(bool)

    def __bool__(self) -> bool:
        if self.is_true.all():
            return True
        if self.is_true.any():
            raise _Divided(self.is_true)
        return False


class Vector:
    """A number of each candidate: an integer over ``divisor``, or a float as a quotient of two vectors may be."""

    def __init__(self, values: np.ndarray, divisor: int = 1) -> None:
        self.values, self.divisor = values, divisor

    @property
    def is_exact(self) -> bool:
        """Whether the numbers are integers over the divisor, and no floats."""
        return self.values.dtype.kind != "f"

    def floats(self) -> np.ndarray:
        """Return the numbers as floats."""
        return (self.values / self.divisor if self.divisor != 1 else self.values).astype(float)

    def larger(self, other: Any) -> "Vector":
        """Return the larger of both numbers, as floats."""
        return Vector(np.maximum(self.floats(), _floats(other)))

    def __add__(self, other: Any) -> "Vector":
        if not _are_exact(self, other):
            return Vector(self.floats() + _floats(other))
        values, divisor = _parts(other)
        total = _exact(np.add, _exact(np.multiply, self.values, divisor), _exact(np.multiply, values, self.divisor))
        return Vector(total, self.divisor * divisor)

    def __mul__(self, other: Any) -> "Vector":
        if not _are_exact(self, other):
            return Vector(self.floats() * _floats(other))
        values, divisor = _parts(other)
        return Vector(_exact(np.multiply, self.values, values), self.divisor * divisor)

    def __floordiv__(self, other: Any) -> "Vector":
        return _floor_quotient(self, other)

    def __rfloordiv__(self, other: Any) -> "Vector":
        return _floor_quotient(other, self)

    def __truediv__(self, other: Any) -> "Vector":
        return _quotient(self, other)

    def __rtruediv__(self, other: Any) -> "Vector":
        return _quotient(other, self)

    def __mod__(self, other: Any) -> "Vector":
        return self - other * _floor_quotient(self, other)

    def __neg__(self) -> "Vector":
        return Vector(-self.values, self.divisor)

    def __sub__(self, other: Any) -> "Vector":
        return self + -other

    def __rsub__(self, other: Any) -> "Vector":
        return -self + other

    def __pow__(self, power: int) -> "Vector":
        return prod([self] * power, start=Vector(np.ones_like(self.values)))

    __radd__, __rmul__ = __add__, __mul__

    def __ceil__(self) -> "Vector":
        return self if self.is_exact and self.divisor == 1 else -_floor_quotient(-self, 1)

    def __floor__(self) -> "Vector":
        return _floor_quotient(self, 1)

    def __lt__(self, other: Any) -> _Comparison:
        return _Comparison(np.less(*_pair(self, other)))

    def __le__(self, other: Any) -> _Comparison:
        return _Comparison(np.less_equal(*_pair(self, other)))

    def __gt__(self, other: Any) -> _Comparison:
        return _Comparison(np.greater(*_pair(self, other)))

    def __ge__(self, other: Any) -> _Comparison:
        return _Comparison(np.greater_equal(*_pair(self, other)))

    def __eq__(self, other: Any) -> _Comparison:  # type: ignore[override]
        return _Comparison(np.equal(*_pair(self, other)))

    def __ne__(self, other: Any) -> _Comparison:  # type: ignore[override]
        return _Comparison(np.not_equal(*_pair(self, other)))

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return bool(self != 0)


def _parts(number: Any) -> tuple[Any, int]:
    """Return an exact number as an integer and what divides it."""
    if isinstance(number, Vector):
        return number.values, number.divisor
    return (number.numerator, number.denominator) if isinstance(number, Fraction) else (number, 1)


def _exact(operation: np.ufunc, one: Any, other: Any) -> Any:
    """Return a sum or a product of integers, by Python's where 63 bits may not hold it."""
    largest = [int(np.max(np.abs(numbers))) for numbers in (one, other)]
    if (sum(largest) if operation is np.add else prod(largest)) >= 2**63:
        one = np.asarray(one, dtype=object)
    return operation(one, other)


def _floats(number: Any) -> Any:
    return number.floats() if isinstance(number, Vector) else float(number)


def _are_exact(*numbers: Any) -> bool:
    return all(one.is_exact if isinstance(one, Vector) else isinstance(one, (int, Fraction)) for one in numbers)


def _pair(one: Any, other: Any) -> tuple[Any, Any]:
    """Return two numbers that compare as ``one`` and ``other`` do."""
    if not _are_exact(one, other):
        return _floats(one), _floats(other)
    (a, by_a), (b, by_b) = _parts(one), _parts(other)
    return _exact(np.multiply, a, by_b), _exact(np.multiply, b, by_a)


def _floor_quotient(one: Any, other: Any) -> Vector:
    a, b = _pair(one, other)
    return Vector(a // b)


def _quotient(one: Any, other: Any) -> Vector:
    """Return a quotient: exact by an integer or where nothing is left of any candidate, else a float."""
    if not _are_exact(one, other):
        return Vector(_floats(one) / _floats(other))
    a, b = _pair(one, other)
    if isinstance(b, int):
        return Vector(a, b)
    return Vector(a / b if (a % b).any() else a // b)


def evaluate(function: Callable[[Mapping[str, Vector]], Any], sizes: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return ``function`` of the sizes of each candidate, which has an integer of each array."""
    number = len(next(iter(sizes.values())))
    found = np.empty(number)
    waiting = [np.arange(start, min(start + MOST, number)) for start in range(0, number, MOST)]
    while waiting:
        places = waiting.pop()
        try:
            found[places] = _floats(function({name: Vector(values[places]) for name, values in sizes.items()}))
        except _Divided as found_parts:
            waiting += [places[found_parts.is_true], places[~found_parts.is_true]]
    return found
