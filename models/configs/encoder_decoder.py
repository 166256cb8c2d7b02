"""Encoder-decoder Transformer: sizes and their validation. Importable without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from headcount.models.configs.base import AttentionConfig, Input, fields_of
from headcount.models.configs.moe_ffn import TakesMixture


class Translation(TakesMixture):
    """A model from source tokens and target tokens to target tokens."""

    vocab_size: int

    @property
    def decoder_attention(self) -> AttentionConfig:
        """The attention of decoder layers."""
        return self.attention.in_decoder

    def inputs(self, lengths: Mapping[str, int]) -> dict[str, Input]:
        """Return source tokens (B, S) and target tokens (B, T)."""
        return {
            "src_tokens": Input((lengths["batch_size"], lengths["src_len"]), self.vocab_size),
            "tgt_tokens": Input((lengths["batch_size"], lengths["tgt_len"]), self.vocab_size),
        }


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig(Translation):
    """Post-norm encoder-decoder Transformer with ReLU, sinusoidal positions and one shared embedding."""

    module: ClassVar[str | None] = "EncoderDecoder"
    fields_by_letter: ClassVar[Mapping[str, str]] = fields_of("d_m", "F", "V", "N_enc", "N_dec", "E_ff", "K_ff")

    attention: AttentionConfig
    d_model: int
    d_ff: int
    num_encoder_layers: int
    num_decoder_layers: int
    vocab_size: int
    dropout: float = 0.0
    ffn_dropout: float = 0.0
