"""Multi-head, grouped-query and multi-query attention: sizes and their validation. Importable without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from headcount.models.configs.base import AttentionConfig, ConfigError, Implementation, check_divides, fields_of


@dataclass(frozen=True, kw_only=True)
class MultiHeadAttentionConfig(AttentionConfig):
    """h heads; MHA where num_kv_heads is num_heads, GQA or MQA where it is fewer."""

    variant: ClassVar[str] = "mha"
    module: ClassVar[str | None] = "MultiHeadAttention"
    fields_by_letter: ClassVar[Mapping[str, str]] = fields_of("d_m", "h", "d_h", "g", "bias")
    implementations: ClassVar[tuple[Implementation, ...]] = (
        Implementation("reference", "mha:reference", timed=False),
        Implementation("fused", "mha:fused"),
    )
    rotary: ClassVar[str | None] = "head_dim"
    columns: ClassVar[tuple[str, ...]] = ("q_proj", "k_proj", "v_proj")
    rows: ClassVar[tuple[str, ...]] = ("out_proj",)

    d_model: int
    num_heads: int
    num_kv_heads: int | None = None
    head_dim: int | None = None
    bias: bool = True
    attention_dropout: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        derive_heads(self)


def derive_heads(config: AttentionConfig) -> None:
    """Set num_kv_heads and head_dim where they are None, and check them against num_heads."""
    if config.num_kv_heads is None:
        object.__setattr__(config, "num_kv_heads", config.num_heads)
    derive_head_dim(config)
    check_divides("num_kv_heads", config.num_kv_heads, "num_heads", config.num_heads)


def derive_head_dim(config: AttentionConfig) -> None:
    """Set head_dim to d_model / num_heads where it is None."""
    if config.head_dim is None:
        if config.d_model % config.num_heads:
            raise ConfigError(
                f"num_heads must divide d_model, and {config.num_heads} does not divide {config.d_model}; "
                "choose another num_heads or set head_dim"
            )
        object.__setattr__(config, "head_dim", config.d_model // config.num_heads)


CONFIG = MultiHeadAttentionConfig
