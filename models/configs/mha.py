"""Multi-head, grouped-query and multi-query attention: sizes and their validation. Importable without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from headcount.models.configs.base import AttentionConfig, Implementation, fields_of, reference_and_fused


@dataclass(frozen=True, kw_only=True)
class MultiHeadAttentionConfig(AttentionConfig):
    """h heads; MHA where num_kv_heads is num_heads, GQA or MQA where it is fewer."""

    module: ClassVar[str | None] = "MultiHeadAttention"
    fields_by_letter: ClassVar[Mapping[str, str]] = fields_of("d_m", "h", "d_h", "g", "bias")
    implementations: ClassVar[tuple[Implementation, ...]] = (
        *reference_and_fused("mha"),
        Implementation("packed", "mha:fused", timed=False),
        Implementation("compiled", "kernels.compiled:mha", timed=False, package="triton"),
    )
    rotary: ClassVar[str | None] = "head_dim"
    columns: ClassVar[tuple[str, ...]] = ("q_proj", "k_proj", "v_proj")
    key_value_columns: ClassVar[tuple[str, ...]] = ("k_proj", "v_proj")

    d_model: int
    num_heads: int
    num_kv_heads: int | None = None
    head_dim: int | None = None
    bias: bool = True
    attention_dropout: float = 0.0
