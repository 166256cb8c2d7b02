"""Dense decoders of published cost tables: sizes and their validation. Importable without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from headcount.models.configs.base import CausalLanguageModelConfig, ConfigError, check_choice, fields_of


class Positions(StrEnum):
    """Position encoding: a learned table, rotary, or relative as in Transformer-XL."""

    LEARNED = "learned"
    ROTARY = "rotary"
    RELATIVE = "relative"


@dataclass(frozen=True, kw_only=True)
class DecoderConfig(CausalLanguageModelConfig):
    """Pre-norm causal decoder of GPT-3, Megatron-LM and PaLM; relative positions (Chinchilla) have a closed form only.

    ``context_len`` is also the number of learned positions. ``bias``: of attention, the feed-forward block and norms.
    ``gated``: SwiGLU. ``tied``: the output shares the embedding's weight. ``parallel``: attention and feed-forward
    block read the same norm.
    """

    fields_by_letter: ClassVar[Mapping[str, str]] = fields_of(
        "d_m", "F", "V", "bias", "gated", "tied", "parallel", "positions", "P"
    ) | {"h": "attention.num_heads", "d_h": "attention.head_dim"}

    bias: bool = True
    gated: bool = False
    tied: bool = True
    parallel: bool = False
    positions: Positions | str = Positions.LEARNED

    def __post_init__(self):
        super().__post_init__()
        for layer in self.layers:
            check_choice("attention", layer.variant, ["mha"])
        if self.positions == Positions.ROTARY:
            self.check_rotary()

    @property
    def module(self) -> str | None:
        """The name of the torch class; None with relative positions."""
        return None if self.positions == Positions.RELATIVE else "DecoderOnly"

    def length_letters(self, lengths: Mapping[str, int]) -> dict[str, int]:
        """Return input lengths by letter. Raises ConfigError for more tokens than learned positions."""
        if self.positions == Positions.LEARNED and lengths["seq_len"] > self.context_len:
            raise ConfigError(
                f"seq_len must be at most context_len = {self.context_len}, not {lengths['seq_len']}; set context_len "
                "for longer inputs"
            )
        return super().length_letters(lengths)
