"""Printing rules of tables: unit, digits, rounding; and the numbers that print as a given text."""

from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor

UNITS = {"": 1, "%": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "B": 10**9, "T": 10**12, "P": 10**15}
SHIFTS = {"half-up": Fraction(1, 2), "truncate": Fraction(0)}


@dataclass(frozen=True)
class Printing:
    """``unit`` one of UNITS; ``rounding`` half-up or truncate; ``decimals`` after the point, -1 for as many as
    the table prints, or ``significant`` digits in all, for whole numbers of the unit (2089.3 M with three
    significant digits prints 2090M); ``multiple``: a printed value is a multiple of so many last digits."""

    unit: str
    rounding: str
    decimals: int = 0
    significant: int | None = None
    multiple: int = 1

    def like(self, text: str) -> "Printing":
        """Return this rule with the decimals of ``text``, if the rule follows the table."""
        return self if self.decimals >= 0 else replace(self, decimals=len(text[:-1].partition(".")[2]))

    def _step(self, value: Fraction) -> Fraction:
        if self.significant is None:
            return Fraction(self.multiple, 10**self.decimals)
        return Fraction(10 ** max(len(str(floor(value))) - self.significant, 0))

    def text(self, number: int | Fraction) -> str:
        """Return ``number`` as the table prints it."""
        value = Fraction(number) / UNITS[self.unit]
        step = self._step(value)
        last_digits = floor(value / step + SHIFTS[self.rounding]) * step * 10**self.decimals
        integer, rest = divmod(int(last_digits), 10**self.decimals)
        return f"{integer}" + (f".{rest:0{self.decimals}}" if self.decimals else "") + self.unit

    def step(self, text: str) -> int:
        """Return the distance between two neighbouring printed values around ``text``."""
        return int(self.like(text)._step(Fraction(text[:-1])) * UNITS[self.unit])

    def interval(self, text: str) -> range:
        """Return all integers that print as ``text``. Raises ValueError for another unit."""
        if text[-1] != self.unit:
            raise ValueError(f"{text} is not printed in {self.unit}")
        value, step = int(Fraction(text[:-1]) * UNITS[self.unit]), self.step(text)
        low = value - (step // 2 if self.rounding == "half-up" else 0)
        return range(low, low + step)

    def statement(self) -> str:
        """Return this rule in words."""
        if self.significant:
            digits = f"{self.significant} significant digits"
        elif self.multiple != 1:
            digits = f"steps of {self.multiple} {self.unit}"
        elif self.decimals < 0:
            digits = f"as many decimals of {self.unit} as are printed"
        else:
            plural = "" if self.decimals == 1 else "s"
            digits = f"{self.decimals} decimal{plural} of {self.unit}" if self.decimals else f"whole {self.unit}"
        return f"{'rounded half up' if self.rounding == 'half-up' else 'truncated'} to {digits}"
