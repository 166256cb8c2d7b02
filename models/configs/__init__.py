"""Sizes: configurations, presets and the registry of variants. They import no torch."""
