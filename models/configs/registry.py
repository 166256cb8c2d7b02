"""Every attention variant and every model by name: a line each. Importable without torch.

A variant's file of that name holds its ``CONFIG``; the other rooms have a file of the same name.
"""

from importlib import import_module

from headcount.models.configs.base import AttentionConfig, ModelConfig
from headcount.models.configs.convolution import ConvolutionConfig
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
        DiffusionTransformerConfig,
        TransNeXtConfig,
    )
}
