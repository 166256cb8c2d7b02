"""What a budget is searched over: the letters of an attention variant, their ranges, and which points exist."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headcount.bench.errors import UsageError
from headcount.models.configs.base import AttentionConfig
from headcount.models.configs.moh import Form
from headcount.models.configs.registry import ATTENTIONS

Sizes = Mapping[str, Any]
"""Integers, or arrays that broadcast against one another, by letter."""


@dataclass(frozen=True)
class Letter:
    """A letter's range: ``friendly`` sizes by default, which ``statement`` tells, every integer of ``any_size`` on
    request."""

    friendly: tuple[int, ...]
    any_size: range
    statement: str
    least: int = 1


@dataclass(frozen=True)
class Family:
    """An attention variant: the preset to change, its letters in the order of the search, which points exist.

    ``example`` is a point that exists whatever the model around it. ``conditions`` holds what must be true of the
    ``coupled`` letters together, by its name, in an attention like the given one. ``defaults`` are fields that a
    search sets unless it is told otherwise, and ``remark`` says what is to be known about its answers.
    """

    variant: str
    preset: str
    example: Mapping[str, int]
    letters: Mapping[str, Letter]
    coupled: tuple[str, ...]
    conditions: Callable[[Sizes, AttentionConfig], dict[str, Any]]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    remark: Callable[[AttentionConfig], str] = lambda attention: ""

    def fields(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Sizes by the names of the configuration's fields."""
        return {ATTENTIONS[self.variant].fields_by_letter[letter]: size for letter, size in sizes.items()}

    def condition(self, attention: AttentionConfig) -> str:
        """The conditions in words."""
        return ", ".join(self.conditions(self.example, attention))


def _moh_conditions(sizes: Sizes, attention: AttentionConfig) -> dict[str, Any]:
    h, s, r, g = (sizes[letter] for letter in ("h", "s", "r", "g"))
    conditions = {"1 <= s + r <= h": (s + r >= 1) & (s + r <= h), "g divides h": h % g == 0}
    if attention.router == "query_norm":
        conditions["h - s >= 2 unless r = 0"] = (h - s >= 2) | (r == 0)
    return conditions


def _moh_remark(attention: AttentionConfig) -> str:
    return {
        Form.IDEAL: "Counted: the ideal MoH, which computes no head for a token that does not use it, but its keys and "
        "values (--set form=released: every head, as the released code). How s + r is split changes only "
        "which routers there are.",
        Form.RELEASED: "Counted: MoH as released, which computes every head: s and r change only which routers there "
        "are.",
    }[attention.form]


_FEW = (1, 2, *range(4, 65, 4))
_HEADS = Letter(_FEW, range(1, 65), "1, 2 or a multiple of 4")
_SELECTED = Letter((*range(1, 5), *range(6, 33, 2)), range(33), "1, 3 or even", least=0)
_WIDTH = Letter(tuple(range(16, 513, 16)), range(1, 513), "a multiple of 16")
# Five letters make many points: fewer of each when all integers are asked for.
_MOH_HEADS, _MOH_WIDTH = replace(_HEADS, any_size=range(1, 33)), replace(_WIDTH, any_size=range(8, 129))

FAMILIES = {
    family.variant: family
    for family in (
        Family(
            "moa",
            "moa-8K8E128D",
            {"K": 1, "E": 1, "D": 1},
            {
                "K": Letter(tuple(k for k in _FEW if k <= 32), range(1, 33), "1, 2 or a multiple of 4"),
                "E": Letter(tuple(range(8, 129, 8)), range(1, 129), "a multiple of 8"),
                "D": _WIDTH,
            },
            ("K", "E"),
            lambda sizes, _: {"K <= E": sizes["K"] <= sizes["E"]},
        ),
        Family(
            "mha",
            "transformer-base",
            {"h": 1, "g": 1, "d_h": 2},
            {"h": _HEADS, "g": _HEADS, "d_h": _WIDTH},
            ("h", "g"),
            lambda sizes, _: {"g divides h": sizes["h"] % sizes["g"] == 0},
        ),
        Family(
            "moh",
            "moh-llm-s-75",
            {"h": 1, "s": 1, "r": 0, "g": 1, "d_h": 2},
            {"h": _MOH_HEADS, "s": _SELECTED, "r": _SELECTED, "g": _MOH_HEADS, "d_h": _MOH_WIDTH},
            ("h", "s", "r", "g"),
            _moh_conditions,
            {"form": Form.IDEAL},
            _moh_remark,
        ),
    )
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
    least = chosen.letters[letter].least
    if not values or min(values) < least:
        raise UsageError(f"the range {text!r} must hold sizes of at least {least}")
    return letter, values
