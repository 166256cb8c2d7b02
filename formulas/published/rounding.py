"""Printed numbers as texts: digits, unit and value; intervals of numbers; decimals."""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import floor, log10

BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
"""Units of bytes, and what they multiply by."""
UNITS = {"": 1, "%": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "B": 10**9, "T": 10**12, "P": 10**15, **BINARY}
WORDS = {"thousand": "K", "million": "M", "billion": "B", "trillion": "T"}
"""Units that are written as words."""
MEASURES = {"mac": "MACs", "flop": "FLOPs", "param": "parameters", "b": "bytes", "element": "elements"}
"""What a printed number is of, by the beginning of what stands behind its unit."""
MEASURED = r"(?i:macs?|flops?|params?|parameters|bytes?|elements?)|B"
"""What stands behind a unit, as a regular expression."""
NUMBER = re.compile(
    rf"(?:[~≈] ?)?(?=[\d,.]*[1-9])(\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?|\d+(?:\.\d+)?)([eE][+-]?\d{{1,2}})?"
    rf" ?({'|'.join([*WORDS, *sorted(UNITS, reverse=True)])}) ?({MEASURED})?"
)
"""A printed number that is not 0: digits, exponent, unit, and what it is of."""
GIVEN = re.compile(r"([+-]?\d+(?:\.\d+)?)(?:[eE]([+-]?\d{1,2}))?")
"""A rounded number that is given, which may be 0 or negative: digits and exponent."""
QUOTIENT = re.compile(r"[+-]?\d+/0*[1-9]\d*")
"""An exact number that is given as text."""
MOST_DIGITS = 100
"""The most characters of a number in a table."""
LARGEST = 10**MOST_DIGITS
"""The largest value of a cell."""


@dataclass(frozen=True)
class Interval:
    """The numbers from ``low`` to ``high``; equal where a number is exact."""

    low: Fraction
    high: Fraction

    @property
    def middle(self) -> Fraction:
        """The number in the middle."""
        return (self.low + self.high) / 2


@cache
def read(text: str) -> tuple[str, str, Fraction]:
    """Return the digits of a printed number, its exponent and unit, and what these multiply the digits by.

    Raises ValueError for no number.
    """
    digits, exponent, unit, _ = _parts(text)
    unit = WORDS.get(unit, unit)
    return digits.replace(",", ""), exponent + unit, Fraction(f"1{exponent}") * UNITS[unit]


def measure(text: str) -> str:
    """Return what a printed number says that it is of, one of MEASURES or %; empty where it does not say."""
    *_, unit, words = _parts(text)
    if unit == "%":
        return unit
    return next((name for start, name in MEASURES.items() if words.lower().startswith(start)), "")


def _parts(text: str) -> tuple[str, ...]:
    found = NUMBER.fullmatch(text)
    if not found or len(text) > MOST_DIGITS:
        raise ValueError(f"{text[:MOST_DIGITS]!r} is no number, as 6.7B, 1,234, 43.7%, 3.8E25 or 7.96 TMACs")
    return found.groups(default="")


def number(text: str) -> Fraction:
    """Return the value of a printed number. Raises ValueError for no number."""
    digits, _, unit = read(text)
    return Fraction(digits) * unit


def ends(value: int | str) -> tuple[int | Fraction, ...]:
    """Return an exact number, an integer or a quotient "3/4", or both ends of a rounded one.

    Raises ValueError for no number, and for one that is too large.
    """
    if isinstance(value, int):
        if abs(value) > LARGEST:
            raise ValueError(f"is a number of more than {MOST_DIGITS} digits")
        return (value,)
    text = value.replace("_", "").replace(",", "")
    quotient, rounded = QUOTIENT.fullmatch(text), GIVEN.fullmatch(text)
    if quotient and len(text) <= MOST_DIGITS:
        return (Fraction(text),)
    if not rounded or len(text) > MOST_DIGITS:
        raise ValueError(f"{value[:MOST_DIGITS]!r} is no number, as 20.3, 1.5E25 or 3/4")
    digits, exponent = rounded[1], int(rounded[2] or 0)
    half, unit = Fraction(1, 2 * 10 ** decimals(digits)), Fraction(10) ** exponent
    return (Fraction(digits) - half) * unit, (Fraction(digits) + half) * unit


def decimals(digits: str) -> int:
    """Return the number of digits after the point."""
    return len(digits.partition(".")[2])


def fixed(value: Fraction, places: int) -> str:
    """Return ``value`` rounded half up to ``places`` decimals."""
    scaled = floor(value * 10**places + Fraction(1, 2))
    whole, rest = divmod(abs(scaled), 10**places)
    return f"{'-' if scaled < 0 else ''}{whole:,}" + (f".{rest:0{places}}" if places else "")


def significant(value: Fraction) -> str:
    """Return ``value`` with four decimals, of a positive one below 0.1 or from 1,000 on with four digits."""
    exponent = floor(log10(value)) if value > 0 else 0
    if exponent < 3:
        return fixed(value, max(4, 3 - exponent))
    return fixed(floor(value / 10 ** (exponent - 3) + Fraction(1, 2)) * Fraction(10) ** (exponent - 3), 0)
