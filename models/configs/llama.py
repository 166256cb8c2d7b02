"""LLaMA: sizes and their validation. Importable without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from headcount.models.configs.base import CausalLanguageModelConfig, fields_of
from headcount.models.configs.moe_ffn import TakesMixture


@dataclass(frozen=True, kw_only=True)
class LlamaConfig(CausalLanguageModelConfig, TakesMixture):
    """Pre-norm causal language model: RMSNorm, rotary positions, SwiGLU, untied output, no biases but the layers'.

    Longer inputs than ``context_len`` are allowed.
    """

    gated: ClassVar[bool] = True
    module: ClassVar[str | None] = "Llama"
    fields_by_letter: ClassVar[Mapping[str, str]] = fields_of("d_m", "F", "V", "E_ff", "K_ff")
    minimum: ClassVar[Mapping[str, int]] = {**TakesMixture.minimum, **CausalLanguageModelConfig.minimum}
    columns: ClassVar[tuple[str, ...]] = ("gate_proj", "up_proj")
    rows: ClassVar[tuple[str, ...]] = ("down_proj",)

    rope_theta: float = 500000.0

    def __post_init__(self):
        super().__post_init__()
        self.check_rotary()
