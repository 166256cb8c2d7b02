"""FLOPs of operations without multiply-accumulates: a stated price per element for each kind."""

import tomllib
from collections.abc import Mapping
from importlib.resources import files

from headcount.formulas.ledger import OTHER_KINDS, Ledger, Size

PRICES: Mapping[str, int] = tomllib.loads(files("headcount.formulas").joinpath("prices.toml").read_text("utf-8"))
"""FLOPs per element by kind (prices.toml)."""

GROUPS = {
    "softmax": ("softmax",),
    "norm": ("norm", "rms_norm"),
    "elementwise": ("activation", "bias", "elementwise", "rope", "pooling"),
}
"""Kinds of a ledger by column."""


def other_flops(forward: Ledger, prices: Mapping[str, int]) -> dict[str, Size]:
    """Return the FLOPs by kind at ``prices``; an expert's bias is a ``bias``, and an embedding computes nothing."""
    out = dict.fromkeys(prices, 0)
    for entry in forward:
        kind = entry.kind.removeprefix("expert_")
        if entry.kind in OTHER_KINDS and kind in prices:
            out[kind] += prices[kind] * entry.size
    return out


def statement(prices: Mapping[str, int]) -> str:
    """Return the prices as text."""
    return "FLOPs per element: " + ", ".join(f"{kind} {price}" for kind, price in prices.items()) + "."
