"""LLaMA: sizes and their validation. Importable without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from headcount.models.configs.base import AttentionConfig, ConfigError, Input, Layered, check_choice
from headcount.models.configs.moe_ffn import TakesMixture


@dataclass(frozen=True, kw_only=True)
class LlamaConfig(TakesMixture, Layered):
    """Pre-norm causal language model: RMSNorm, rotary positions, SwiGLU, untied output, no biases but the layers'.

    ``context_len``: tokens of the default input; longer inputs are allowed. ``columns`` and ``rows``: of its
    feed-forward blocks, as those of an attention.
    """

    variant: ClassVar[str] = "llama"
    gated: ClassVar[bool] = True
    module: ClassVar[str | None] = "Llama"
    fields_by_letter: ClassVar[Mapping[str, str]] = {
        "d_m": "d_model",
        "F": "d_ff",
        "V": "vocab_size",
        **TakesMixture.mixture_letters,
    }
    minimum: ClassVar[Mapping[str, int]] = {**TakesMixture.minimum, "rope_theta": 1}
    columns: ClassVar[tuple[str, ...]] = ("gate_proj", "up_proj")
    rows: ClassVar[tuple[str, ...]] = ("down_proj",)

    layers: tuple[AttentionConfig, ...]
    d_model: int
    d_ff: int
    num_layers: int
    vocab_size: int
    context_len: int = 2048
    rope_theta: float = 500000.0

    def __post_init__(self):
        super().__post_init__()
        self.check_attention(*self.layers)
        # sorted, so that the order does not depend on what was imported first
        rotary = sorted(cls.variant for cls in AttentionConfig.__subclasses__() if cls.rotary)
        for layer in self.layers:
            check_choice("attention", layer.variant, rotary)
            if layer.rotary_width % 2:
                raise ConfigError(f"{layer.rotary} must be even for rotary positions, not {layer.rotary_width}")

    @property
    def lengths(self) -> dict[str, int]:
        """One sequence of ``context_len`` tokens."""
        return {"batch_size": 1, "seq_len": self.context_len}

    def inputs(self, lengths: Mapping[str, int]) -> dict[str, Input]:
        """Return tokens (B, T)."""
        return {"tokens": Input((lengths["batch_size"], lengths["seq_len"]), self.vocab_size)}


CONFIG = LlamaConfig
