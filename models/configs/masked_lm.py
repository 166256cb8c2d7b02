"""Masked language model: sizes and their validation. Importable without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from headcount.models.configs.base import AttentionConfig, ConfigError, fields_of
from headcount.models.configs.moe_ffn import TakesMixture


@dataclass(frozen=True, kw_only=True)
class MaskedLanguageModelConfig(TakesMixture):
    """Post-norm RoBERTa-style encoder: GELU, learned positions, embedding norm, tied output with a bias."""

    module: ClassVar[str | None] = "MaskedLanguageModel"
    fields_by_letter: ClassVar[Mapping[str, str]] = fields_of("d_m", "F", "V", "N", "P", "E_ff", "K_ff") | {
        "P": "max_positions"
    }
    lengths: ClassVar[Mapping[str, int]] = {"batch_size": 1, "seq_len": 128}

    attention: AttentionConfig
    d_model: int
    d_ff: int
    num_layers: int
    vocab_size: int
    max_positions: int
    dropout: float = 0.0
    ffn_dropout: float = 0.0

    def length_letters(self, lengths: Mapping[str, int]) -> dict[str, int]:
        """Return input lengths by letter: T tokens; two positions are reserved, as in RoBERTa."""
        if lengths["seq_len"] + 2 > self.max_positions:
            raise ConfigError(
                f"seq_len must be at most max_positions - 2 = {self.max_positions - 2}, not {lengths['seq_len']}; "
                "set max_positions for longer inputs"
            )
        return super().length_letters(lengths)
