"""Mixture of heads over aggregated attention: of a grid of tokens, so that no length, grid or search has it.

Importable without torch.
"""

from headcount.bench.variants.variant import Variant

VARIANT = Variant(
    name="moh_aggregated",
    label="MoH-ViT",
    ideal="nothing computed or read of a head for a token that does not select it; keys and values of all heads stay, "
    "for other tokens read them.",
    unsearched="its sizes are one for each stage of an image's grid",
)
