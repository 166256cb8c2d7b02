"""Mixture-of-experts feed-forward blocks, as the routing tables show them; without attention they are in no grid.

Importable without torch.
"""

from dataclasses import replace

from headcount.bench.variants.moa import VARIANT as MOA
from headcount.bench.variants.variant import Variant

VARIANT = Variant(
    name="moe_ffn",
    label="mixture feed-forward",
    routed=replace(MOA.routed, executed="MACs of a feed-forward expert: its matrices, of the tokens that chose it."),
)
