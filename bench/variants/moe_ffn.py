"""Mixture feed-forward blocks in tables of routing: no attention, so that no grid or search has them.

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
