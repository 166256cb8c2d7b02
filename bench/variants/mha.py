"""Multi-head, grouped-query and multi-query attention in grids and searches. Importable without torch."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from headcount.bench.variants.variant import HEADS, WIDTH, Grid, Printed, Search, Variant
from headcount.formulas import mha


def _macs_eq19(config, T: int, S: int) -> int | None:
    plain = config.num_heads * config.head_dim == config.d_model and config.num_kv_heads == config.num_heads
    return mha.macs_eq19(T=T, d_m=config.d_model) if T == S and plain else None


VARIANT = Variant(
    name="mha",
    label="MHA",
    grid=Grid(("h", "d_h", "g", "bias"), ("h",), may_be_zero=("bias",)),
    printed=Printed("Eq. 19", _macs_eq19),
    baselines=lambda config: {},
    search=Search(
        "transformer-base",
        {"h": 1, "g": 1, "d_h": 2},
        {"h": HEADS, "g": HEADS, "d_h": WIDTH},
        ("h", "g"),
        lambda sizes, _: {"g divides h": sizes["h"] % sizes["g"] == 0},
    ),
)


def _narrowed(label: str, condition: str, holds: Callable[[dict[str, Any]], Any]) -> Variant:
    """Return MHA whose search takes only the sizes for which ``holds`` is true."""
    rules = VARIANT.search.conditions
    search = replace(VARIANT.search, conditions=lambda sizes, of: {**rules(sizes, of), condition: holds(sizes)})
    return replace(VARIANT, label=label, search=search)


NARROWED = {
    "gqa": _narrowed("GQA", "g < h", lambda sizes: sizes["g"] < sizes["h"]),
    "mqa": _narrowed("MQA", "g = 1", lambda sizes: sizes["g"] == 1),
}
"""MHA with fewer key/value heads, by the names that papers use."""
