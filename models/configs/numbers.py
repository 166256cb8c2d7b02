"""Numbers as people write them on command lines and in files. Importable without torch."""

import math
import re
from decimal import Decimal

LONGEST = 100
"""Most characters of a number; Python refuses to print integers of thousands of digits."""
UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
_WHOLE = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def parse_int(text: str) -> int:
    """Return a whole number in the digits 0 to 9, with or without a sign; ValueError for anything else."""
    return int(_matched(text, _WHOLE))


def parse_float(text: str) -> float:
    """Return a finite number in the digits 0 to 9, with or without an exponent; ValueError for anything else."""
    value = float(_matched(text, _DECIMAL))
    if math.isinf(value):
        raise ValueError(f"beyond all floats: {text!r}")
    return value


def parse_amount(text: str) -> int:
    """Return the integer of 1200000000, 1.2G or 64Mi; ValueError for anything else, a fraction without a unit too."""
    match = re.fullmatch(rf"([0-9]{{1,30}}(?:\.[0-9]{{1,30}})?)({'|'.join(UNITS)})", text)
    if not match:
        raise ValueError(f"no amount: {text[:LONGEST]!r}; write 1200000000, 1.2G or 64Mi")
    if "." in match[1] and not match[2]:
        raise ValueError(f"{text} has a fraction; did you mean {text}G?")
    return int(Decimal(match[1]) * UNITS[match[2]])


def _matched(text: str, pattern: re.Pattern[str]) -> str:
    if len(text) > LONGEST or not pattern.fullmatch(text):
        raise ValueError(f"no number: {text[:LONGEST]!r}")
    return text
