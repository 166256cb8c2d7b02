"""Mixture of attentive experts: sizes and their validation. Importable without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from headcount.models.configs.base import AttentionConfig, ConfigError, at_least


@dataclass(frozen=True, kw_only=True)
class MixtureOfAttentiveExpertsConfig(AttentionConfig):
    """MAE (arXiv 2005.06537): h experts, each all heads but one, mixed by a gate on the mean token.

    ``gate_width``: hidden width of the two-layer tanh gate.
    """

    variant: ClassVar[str] = "mae"
    module: ClassVar[str | None] = None
    fields_by_letter: ClassVar[Mapping[str, str]] = {
        "d_m": "d_model",
        "h": "num_heads",
        "d_h": "head_dim",
        "G": "gate_width",
        "bias": "bias",
    }

    d_model: int
    num_heads: int
    gate_width: int = 256
    bias: bool = True

    def __post_init__(self):
        at_least(1, d_model=self.d_model, num_heads=self.num_heads, gate_width=self.gate_width)
        if self.d_model % self.num_heads:
            raise ConfigError(f"num_heads must divide d_model, and {self.num_heads} does not divide {self.d_model}")

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        return self.d_model // self.num_heads


CONFIG = MixtureOfAttentiveExpertsConfig
