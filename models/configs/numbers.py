"""Numbers as people write them on command lines and in files. Importable without torch."""

import math
import re

LONGEST = 100
"""Most characters of a number; Python refuses to print integers of thousands of digits."""
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


def _matched(text: str, pattern: re.Pattern[str]) -> str:
    if len(text) > LONGEST or not pattern.fullmatch(text):
        raise ValueError(f"no number: {text[:LONGEST]!r}")
    return text
