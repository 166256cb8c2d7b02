"""The closed forms of the public API, which check their integer sizes as the commands do."""

from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from types import ModuleType

from headcount.formulas.ledger import Ledger, Size

OF_MHA = {
    "gqa": "Grouped-query attention (arXiv 2305.13245): ``mha`` with g < h key/value heads.",
    "mqa": "Multi-query attention (arXiv 1911.02150): ``mha`` with one key/value head, g = 1.",
}
"""Names of ``mha`` with fewer key/value heads, and their descriptions."""
MAY_BE_ZERO = ("n", "s", "r", "M")
"""Letters of numbers of cached tokens, shared heads, routed heads and pooled keys."""


def checked_form(name: str) -> ModuleType:
    """Return the closed forms of variant ``name``; their ``layer`` raises what :func:`check_sizes` does."""
    source = import_module(f"headcount.formulas.{'mha' if name in OF_MHA else name}")
    form = ModuleType(source.__name__, OF_MHA.get(name, source.__doc__))
    vars(form).update({key: value for key, value in vars(source).items() if not key.startswith("__")})
    vars(form)["layer"] = _checked(name, source.layer)
    return form


def _checked(name: str, layer: Callable[..., Ledger]) -> Callable[..., Ledger]:
    @wraps(layer)
    def with_checks(*path: str, **sizes: Size) -> Ledger:
        if name == "gqa" and "g" not in sizes:
            raise TypeError("gqa.layer needs g, the number of key/value heads")
        if name == "mqa" and sizes.setdefault("g", 1) != 1:
            raise TypeError(f"g is 1 in mqa.layer, not {sizes['g']}; gqa.layer takes it")
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
