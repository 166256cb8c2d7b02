"""Checks of the integer sizes of a closed form."""

from collections.abc import Callable, Mapping
from functools import wraps

from headcount.formulas.ledger import Ledger, Size

MAY_BE_ZERO = ("n", "s", "r", "M", "N_pos", "d_pos")
"""Letters of numbers of cached tokens, shared heads, routed heads, pooled keys and positions."""


def checked(layer: Callable[..., Ledger]) -> Callable[..., Ledger]:
    """Return ``layer`` with :func:`check_sizes` on its sizes."""

    @wraps(layer)
    def with_checks(*path: str, **sizes: Size) -> Ledger:
        check_sizes(sizes)
        return layer(*path, **sizes)

    return with_checks


def check_sizes(sizes: Mapping[str, Size]) -> None:
    """Raise ValueError where integers are no sizes of a layer; symbols and arrays are not checked.

    Numbers are at least 1, experts per token at most E, selected heads at most h, cached tokens at most S; key/value
    heads divide the heads, or an expert of MoA's width D.
    """
    known = {letter: size for letter, size in sizes.items() if type(size) in (int, float)}
    for letter, size in known.items():
        least = 0 if letter in MAY_BE_ZERO else 1
        if not size >= least or size % 1:
            raise ValueError(f"{letter} must be a whole number of at least {least}, not {size}")
    for part, whole in (("K", "E"), ("s", "h"), ("n", "S")):
        if {part, whole} <= known.keys() and known[part] > known[whole]:
            raise ValueError(f"{part} must be at most {whole} = {known[whole]}, not {known[part]}")
    if {"s", "r", "h"} <= known.keys() and known["r"] > known["h"] - known["s"]:
        raise ValueError(f"r must be at most h - s = {known['h'] - known['s']}, not {known['r']}")
    whole = "h" if "h" in sizes else "D"
    if {"g", whole} <= known.keys() and known[whole] % known["g"]:
        raise ValueError(f"g must divide {whole}, and {known['g']} does not divide {known[whole]}")
