"""SwitchHead: sizes and their validation. Importable without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from headcount.models.configs.base import AttentionConfig, Implementation, fields_of, reference_and_fused


@dataclass(frozen=True, kw_only=True)
class SwitchHeadConfig(AttentionConfig):
    """h heads with dense queries and keys (arXiv 2312.07987); values and outputs of each from ``top_k`` of its
    ``num_experts`` experts, chosen by the key token and by the query token. No biases.
    """

    module: ClassVar[str | None] = "SwitchHead"
    fields_by_letter: ClassVar[Mapping[str, str]] = fields_of("d_m", "h", "d_h", "E", "K")
    routing_letters: ClassVar[tuple[str, ...]] = ("K", "E")
    implementations: ClassVar[tuple[Implementation, ...]] = reference_and_fused("mha")
    rotary: ClassVar[str | None] = "head_dim"
    columns: ClassVar[tuple[str, ...]] = ("q_proj", "k_proj", "v_proj")

    d_model: int
    num_heads: int
    num_experts: int
    top_k: int
    head_dim: int | None = None
    attention_dropout: float = 0.0
