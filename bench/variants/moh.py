"""Capabilities of mixture-of-head attention: grids, searches and timing. Importable without torch."""

from dataclasses import replace
from typing import Any

from headcount.bench.variants.variant import HEADS, WIDTH, Grid, Letter, Routed, Search, Sizes, Variant
from headcount.models.configs.base import AttentionConfig, Form
from headcount.models.configs.moh import Router

SELECTED = Letter((*range(1, 5), *range(6, 33, 2)), range(33), "1, 3 or even", least=0)
# Five letters make many points: fewer values of each when all integers are searched.
FEWER_HEADS, FEWER_WIDTHS = replace(HEADS, any_size=range(1, 33)), replace(WIDTH, any_size=range(8, 129))


def _conditions(sizes: Sizes, attention: AttentionConfig) -> dict[str, Any]:
    h, s, r, g = (sizes[letter] for letter in ("h", "s", "r", "g"))
    conditions = {"1 <= s + r <= h": (s + r >= 1) & (s + r <= h), "g divides h": h % g == 0}
    if attention.router is Router.QUERY_NORM:
        conditions["h - s >= 2 unless r = 0"] = (h - s >= 2) | (r == 0)
    return conditions


REMARKS = {
    Form.IDEAL: "Counted: the ideal MoH, which computes no head for a token that does not use it, but its keys and "
    "values (--set form=released: every head, as the released code). How s + r is split changes only "
    "which routers there are.",
    Form.RELEASED: "Counted: MoH as released, which computes every head: s and r change only which routers there are.",
}

VARIANT = Variant(
    name="moh",
    label="MoH",
    grid=Grid(("h", "s", "r", "d_h", "g"), ("h", "s", "r"), may_be_zero=("s", "r")),
    search=Search(
        "moh-llm-s-75",
        {"h": 1, "s": 1, "r": 0, "g": 1, "d_h": 2},
        {"h": FEWER_HEADS, "s": SELECTED, "r": SELECTED, "g": FEWER_HEADS, "d_h": FEWER_WIDTHS},
        ("h", "s", "r", "g"),
        _conditions,
        # These sizes decide which routers there are.
        cases={"r": (0,), "s": (0, 1)},
        defaults={"form": Form.IDEAL},
        remark=lambda attention: REMARKS[attention.form],
    ),
    routed=Routed(
        "head",
        "routed heads",
        "A share is a routed head's part of all choices of its layer; every token makes r of them, and uses the s "
        "shared heads besides. Balanced is 100 / (h - s).",
        "MACs: the query and output projection and the core of the tokens that use the head, as where the others are "
        "skipped; the released code does those of every token. Queries that a query_norm router needs of every head "
        "are left out. Heads are numbered from 0, the shared ones first.",
        used="k",
        active=lambda config: config.num_active_heads,
        sizes=("h", "s", "r"),
        shared=lambda config: config.num_shared_heads,
        released=True,
    ),
    forms="every head computed, and no head computed for a token that does not use it",
    ideal="nothing computed or read of a head for a token that does not select it; keys and values of all heads are "
    "stored in both forms. Its peak bytes are of the reference, which gathers weights, keys and values for each row.",
)
