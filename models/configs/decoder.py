"""Dense decoders of published cost tables: sizes and their validation. Importable without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from headcount.models.configs.base import AttentionConfig, Input, Layered, check_choice


class Positions(StrEnum):
    """How a token's position enters: a learned table, rotary, or relative as in Transformer-XL."""

    LEARNED = "learned"
    ROTARY = "rotary"
    RELATIVE = "relative"


@dataclass(frozen=True, kw_only=True)
class DecoderConfig(Layered):
    """Pre-norm causal decoder, closed form only: GPT-3, Megatron-LM, Chinchilla, PaLM.

    ``context_len``: tokens of the default input, and rows of learned positions. ``bias``: of attention, the
    feed-forward block and norms. ``gated``: SwiGLU. ``tied``: the output projection has the embedding's weight.
    ``parallel``: attention and feed-forward block read one norm.
    """

    variant: ClassVar[str] = "decoder"
    module: ClassVar[str | None] = None
    fields_by_letter: ClassVar[Mapping[str, str]] = {
        **{name: name for name in ("bias", "gated", "tied", "parallel", "positions")},
        "d_m": "d_model",
        "F": "d_ff",
        "V": "vocab_size",
        "P": "context_len",
        "h": "num_heads",
        "d_h": "head_dim",
    }

    layers: tuple[AttentionConfig, ...]
    d_model: int
    d_ff: int
    num_layers: int
    vocab_size: int
    context_len: int = 2048
    bias: bool = True
    gated: bool = False
    tied: bool = True
    parallel: bool = False
    positions: Positions | str = Positions.LEARNED

    def __post_init__(self):
        super().__post_init__()
        self.check_attention(*self.layers)
        for layer in self.layers:
            check_choice("attention", layer.variant, ["mha"])

    @property
    def num_heads(self) -> int:
        """Heads of the first layer."""
        return self.attention.num_heads

    @property
    def head_dim(self) -> int:
        """Width of a head of the first layer."""
        return self.attention.head_dim

    @property
    def lengths(self) -> dict[str, int]:
        """One sequence of ``context_len`` tokens."""
        return {"batch_size": 1, "seq_len": self.context_len}

    def inputs(self, lengths: Mapping[str, int]) -> dict[str, Input]:
        """Return tokens (B, T)."""
        return {"tokens": Input((lengths["batch_size"], lengths["seq_len"]), self.vocab_size)}


CONFIG = DecoderConfig
