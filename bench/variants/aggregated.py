"""Aggregated attention: of a grid of tokens, so that no length, grid or search has it. Importable without torch."""

from headcount.bench.variants.variant import Variant

VARIANT = Variant(
    name="aggregated",
    label="TransNeXt",
    unsearched="its sizes are one for each stage of an image's grid",
)
