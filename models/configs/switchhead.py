"""SwitchHead: sizes and their validation. Importable without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from headcount.models.configs.base import Arm, AttentionConfig, ConfigError, at_least, probability


@dataclass(frozen=True, kw_only=True)
class SwitchHeadConfig(AttentionConfig):
    """h heads with dense queries and keys (arXiv 2312.07987); values and outputs of each from ``top_k`` of its
    ``num_experts`` experts, chosen by the key token and by the query token. No biases.
    """

    variant: ClassVar[str] = "switchhead"
    module: ClassVar[str | None] = "SwitchHead"
    fields_by_letter: ClassVar[Mapping[str, str]] = {
        "d_m": "d_model",
        "h": "num_heads",
        "d_h": "head_dim",
        "E": "num_experts",
        "K": "top_k",
    }
    routing_letters: ClassVar[tuple[str, ...]] = ("K", "E")
    arms: ClassVar[tuple[Arm, ...]] = (
        Arm("reference", "switchhead:reference", timed=False),
        Arm("fused", "switchhead:fused"),
    )
    rotary: ClassVar[str | None] = "head_dim"

    d_model: int
    num_heads: int
    num_experts: int
    top_k: int
    head_dim: int | None = None
    attention_dropout: float = 0.0

    def __post_init__(self):
        at_least(1, d_model=self.d_model, num_heads=self.num_heads, num_experts=self.num_experts, top_k=self.top_k)
        probability(attention_dropout=self.attention_dropout)
        if self.top_k > self.num_experts:
            raise ConfigError(f"top_k must lie in 1..num_experts = 1..{self.num_experts}, not {self.top_k}")
        if self.head_dim is None:
            if self.d_model % self.num_heads:
                raise ConfigError(
                    f"num_heads must divide d_model, and {self.num_heads} does not divide {self.d_model}; "
                    "choose another num_heads or set head_dim"
                )
            object.__setattr__(self, "head_dim", self.d_model // self.num_heads)
        at_least(1, head_dim=self.head_dim)


CONFIG = SwitchHeadConfig

PRESETS = {
    "switchhead-llm-s": {"like": "llm-s", "num_heads": 4, "head_dim": 128, "num_experts": 5, "top_k": 2},
}
LAYERS = {
    "switchhead-4h5E2K128D": {"d_model": 1024, "num_heads": 4, "head_dim": 128, "num_experts": 5, "top_k": 2},
}
