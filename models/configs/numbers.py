"""Numbers as people write them on command lines and in files. Importable without torch."""

import math
import re
from decimal import Decimal
from fractions import Fraction

LONGEST = 100
"""Most characters of a number; Python refuses to print integers of thousands of digits."""
UNITS = {
    "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
}  # fmt: skip
TYPE_BITS = {
    "float64": 64, "fp64": 64, "double": 64, "float32": 32, "fp32": 32, "float": 32, "bfloat16": 16, "bf16": 16,
    "float16": 16, "fp16": 16, "half": 16, "float8": 8, "fp8": 8, "int8": 8, "uint8": 8, "float6": 6, "fp6": 6,
    "float4": 4, "fp4": 4, "nf4": 4, "int4": 4, "uint4": 4, "int3": 3, "int2": 2,
}  # fmt: skip
"""Bits of an element by the name of its type, without the scales that some types share among elements."""
_UNIT = "|".join(UNITS)
_WHOLE = re.compile(r"[+-]?[0-9]+")
_AMOUNT = re.compile(rf"([+-]?[0-9]+(?:\.[0-9]+)?)({_UNIT})")
_PLAIN = re.compile(r"[0-9]+(?:\.[0-9]+)?|\.[0-9]+")
_DECIMAL = re.compile(rf"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)({_UNIT})?")


def parse_int(text: str) -> int:
    """Return a whole number: digits 0 to 9, with or without a sign, or with a unit, as 8192, 8k, 1.2G and 64Mi.

    Raises ValueError for anything else, and for a fraction of 1.
    """
    if len(text) <= LONGEST and _WHOLE.fullmatch(text):
        return int(text)
    number, unit = _matched(text, _AMOUNT, "write 1200000000, 1.2G or 64Mi").groups()
    amount = Fraction(number) * UNITS[unit]
    if amount.denominator != 1:
        raise ValueError(f"{text} is no whole number")
    return int(amount)


def parse_bytes(text: str) -> int:
    """Return a number of bytes: a whole number, as parse_int, or one of B, as 80GB. ValueError for anything else."""
    return parse_int(text.removesuffix("B"))


def parse_amount(text: str) -> int:
    """Return a whole number from 0 on, as parse_int; ValueError for anything else."""
    if (value := parse_int(text)) < 0:
        raise ValueError(f"{text} is below 0")
    return value


def parse_float(text: str) -> float:
    """Return a finite number in the digits 0 to 9, with or without an exponent and a unit, as 0.5, 1e12 and 3.35T.

    Raises ValueError for anything else.
    """
    number, unit = _matched(text, _DECIMAL, "write 0.5, 1e12 or 3.35T").groups()
    value = float(number)
    if unit and math.isfinite(value):
        # the nearest float of the product, which a product of floats may miss
        value = float(Decimal(number) * UNITS[unit])
    if math.isinf(value):
        raise ValueError(f"beyond all floats: {text!r}")
    return value


def parse_element_bytes(text: str) -> int | Fraction:
    """Return the bytes of an element, exactly: of a number, as 2 and 0.5, or of a type, as bf16 and int4.

    Raises ValueError for anything else, and for 0.
    """
    if text in TYPE_BITS:
        size = Fraction(TYPE_BITS[text], 8)
    else:
        size = Fraction(_matched(text, _PLAIN, f"write 2, 0.5 or a type: {', '.join(TYPE_BITS)}")[0])
    if not size:
        raise ValueError("an element has more than 0 bytes")
    return int(size) if size.denominator == 1 else size


def whole_bytes(size: int | Fraction) -> int:
    """Return a number of bytes as an integer. Raises ValueError for one that is not whole."""
    if size != int(size):
        raise ValueError(f"{float(size):,.3f} bytes are no whole number")
    return int(size)


def _matched(text: str, pattern: re.Pattern[str], examples: str) -> re.Match[str]:
    match = pattern.fullmatch(text) if len(text) <= LONGEST else None
    if match is None:
        raise ValueError(f"no number: {text[:LONGEST]!r}; {examples}")
    return match
