"""Mixture-of-experts feed-forward blocks as a variant: tables of routing show them, grids of attention do not.

Importable without torch.
"""

from dataclasses import replace

from headcount.bench.variants.moa import VARIANT as MOA
from headcount.bench.variants.variant import Variant

VARIANT = Variant(
    name="moe_ffn",
    label="mixture feed-forward",
    routed=replace(MOA.routed, executed="MACs of a feed-forward expert: its matrices, for the tokens routed to it."),
)
