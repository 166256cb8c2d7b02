"""What a budget is searched over: the letters of an attention variant, their ranges, and which points exist."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bench.errors import UsageError

Sizes = Mapping[str, Any]
"""Integers, or arrays that broadcast against one another, by letter."""


@dataclass(frozen=True)
class Letter:
    """A letter's range: ``friendly`` sizes by default, every integer of ``any_size`` on request."""

    friendly: tuple[int, ...]
    any_size: range
    statement: str


@dataclass(frozen=True)
class Family:
    """An attention variant: the preset to change, its letters in the order of the search, which points exist.

    ``example`` is a point that exists whatever the model around it.
    """

    preset: str
    example: Mapping[str, int]
    letters: Mapping[str, Letter]
    exists: Callable[[Sizes], Any]
    condition: str


_FEW = (1, 2, *range(4, 65, 4))
_WIDTH = Letter(tuple(range(16, 513, 16)), range(8, 257), "a multiple of 16")

FAMILIES = {
    "moa": Family(
        "moa-8K8E128D",
        {"K": 1, "E": 1, "D": 1},
        {
            "K": Letter(tuple(k for k in _FEW if k <= 32), range(1, 33), "1, 2 or a multiple of 4"),
            "E": Letter(tuple(range(8, 129, 8)), range(1, 129), "a multiple of 8"),
            "D": _WIDTH,
        },
        lambda sizes: sizes["K"] <= sizes["E"],
        "K <= E",
    ),
    "mha": Family(
        "transformer-base",
        {"h": 1, "g": 1, "d_h": 1},
        {
            "h": Letter(_FEW, range(1, 65), "1, 2 or a multiple of 4"),
            "g": Letter(_FEW, range(1, 65), "1, 2 or a multiple of 4"),
            "d_h": _WIDTH,
        },
        lambda sizes: sizes["h"] % sizes["g"] == 0,
        "g divides h",
    ),
}


def family(name: str) -> Family:
    """The family called ``name``; UsageError with the names where there is none."""
    if name not in FAMILIES:
        raise UsageError(f"no search over {name!r}; choose from {', '.join(FAMILIES)}")
    return FAMILIES[name]


def parse_range(text: str, chosen: Family) -> tuple[str, tuple[int, ...]]:
    """A letter and its sizes from ``K=4``, ``K=1,2,4``, ``K=1:64`` or ``K=8:64:8`` (both ends included)."""
    letter, _, sizes = text.partition("=")
    if letter not in chosen.letters:
        raise UsageError(f"unknown letter {letter!r}; choose from {', '.join(chosen.letters)}")
    try:
        if ":" in sizes:
            low, high, *step = (int(part) for part in sizes.split(":"))
            values = tuple(range(low, high + 1, *step))
        else:
            values = tuple(sorted({int(part) for part in sizes.split(",")}))
    except (ValueError, TypeError):
        raise UsageError(f"malformed range {text!r}; write K=4, K=1,2,4, K=1:64 or K=8:64:8") from None
    if not values or min(values) < 1:
        raise UsageError(f"the range {text!r} must hold sizes of at least 1")
    return letter, values
