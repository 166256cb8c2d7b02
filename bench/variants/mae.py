"""Mixture of attentive experts: a closed form only, neither searched nor timed. Importable without torch."""

from headcount.bench.variants.variant import Variant

VARIANT = Variant(name="mae", label="MAE")
