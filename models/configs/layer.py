"""A bare attention layer as a model of one layer. Importable without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from headcount.models.configs.base import AttentionConfig, Input, ModelConfig


@dataclass(frozen=True, kw_only=True)
class LayerConfig(ModelConfig):
    """``attention`` by itself, from queries (B, T, d_m) to keys (B, S, d_m); what is built of it is the layer."""

    variant: ClassVar[str] = "layer"
    fields_by_letter: ClassVar[Mapping[str, str]] = {}

    attention: AttentionConfig

    @property
    def module(self) -> str | None:
        """The class of the layer."""
        return self.attention.module

    @property
    def d_model(self) -> int:
        """Width of queries, keys and output."""
        return self.attention.d_model

    def length_letters(self, lengths: Mapping[str, int]) -> dict[str, int]:
        """Input lengths in the field's letters: T query and S key tokens."""
        return {"B": lengths["batch_size"], "T": lengths["tgt_len"], "S": lengths["src_len"]}

    def inputs(self, lengths: Mapping[str, int]) -> dict[str, Input]:
        """The layer's."""
        return self.attention.inputs(lengths)


def as_model(config: AttentionConfig | ModelConfig) -> ModelConfig:
    """``config``, or the model of one layer that it is."""
    return config if isinstance(config, ModelConfig) else LayerConfig(attention=config)
