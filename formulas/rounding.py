"""How a table prints a number: unit, digits, rounding; and which numbers print as a given text."""

from dataclasses import dataclass
from decimal import ROUND_FLOOR, ROUND_HALF_UP, Decimal

UNITS = {"k": 10**3, "M": 10**6, "G": 10**9}
ROUNDINGS = {"half-up": ROUND_HALF_UP, "truncate": ROUND_FLOOR}


@dataclass(frozen=True)
class Printing:
    """``unit`` k, M or G; ``rounding`` half-up or truncate; ``decimals`` after the point, or ``significant``
    digits in all, for whole numbers of the unit (2089.3 M with three significant digits prints 2090M)."""

    unit: str
    rounding: str
    decimals: int = 0
    significant: int | None = None

    def _step(self, value: Decimal) -> Decimal:
        if self.significant is None:
            return Decimal(1).scaleb(-self.decimals)
        return Decimal(1).scaleb(max(value.adjusted() + 1 - self.significant, 0))

    def text(self, number: int) -> str:
        """``number`` as the table prints it."""
        value = Decimal(number) / UNITS[self.unit]
        step = self._step(value)
        return f"{(value / step).quantize(Decimal(1), ROUNDINGS[self.rounding]) * step:f}{self.unit}"

    def step(self, text: str) -> int:
        """The distance between two neighbouring printed values around ``text``."""
        return int(self._step(Decimal(text[:-1])) * UNITS[self.unit])

    def interval(self, text: str) -> range:
        """Every integer that prints as ``text``. Raises ValueError for a text in another unit."""
        if text[-1] != self.unit:
            raise ValueError(f"{text} is not printed in {self.unit}")
        value, step = int(Decimal(text[:-1]) * UNITS[self.unit]), self.step(text)
        low = value - (step // 2 if self.rounding == "half-up" else 0)
        return range(low, low + step)

    def statement(self) -> str:
        """This rule in words."""
        digits = (
            f"{self.significant} significant digits" if self.significant else f"{self.decimals} decimals of {self.unit}"
        )
        if not self.significant and not self.decimals:
            digits = f"whole {self.unit}"
        return f"{'rounded half up' if self.rounding == 'half-up' else 'truncated'} to {digits}"
