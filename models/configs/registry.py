"""Every attention variant and every model by name: a line each. Importable without torch.

A variant's file of that name holds its ``CONFIG``, and ``PRESETS`` and ``LAYERS`` where it brings models and layers of
its own (see presets.py, layers.py); the other rooms have a file of the same name.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from headcount.models.configs.base import AttentionConfig, ModelConfig
from headcount.models.configs.convolution import ConvolutionConfig
from headcount.models.configs.jetmoe import JetMoEConfig
from headcount.models.configs.models import (
    DiffusionTransformerConfig,
    EncoderDecoderConfig,
    LlamaConfig,
    MaskedLanguageModelConfig,
)
from headcount.models.configs.transnext import TransNeXtConfig

VARIANTS = (
    "mha",
    "moa",
    "mae",
    "moh",
    "aggregated",
    "moh_aggregated",
    "mla",
    "switchhead",
)

ATTENTIONS: dict[str, type[AttentionConfig]] = {
    name: import_module(f"headcount.models.configs.{name}").CONFIG for name in VARIANTS
}
MODELS: dict[str, type[ModelConfig]] = {
    cls.variant: cls
    for cls in (
        EncoderDecoderConfig,
        MaskedLanguageModelConfig,
        ConvolutionConfig,
        LlamaConfig,
        JetMoEConfig,
        DiffusionTransformerConfig,
        TransNeXtConfig,
    )
}


def brought(what: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Variant, name and fields of each of the models (``PRESETS``) or layers (``LAYERS``) in the variants' files."""
    for variant in VARIANTS:
        for name, fields in getattr(import_module(f"headcount.models.configs.{variant}"), what, {}).items():
            yield variant, name, fields
