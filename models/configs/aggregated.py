"""Aggregated attention: sizes and their validation. Importable without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from headcount.models.configs.base import AttentionConfig, Implementation, Input, fields_of


@dataclass(frozen=True, kw_only=True)
class AggregatedAttentionConfig(AttentionConfig):
    """TransNeXt's attention (arXiv 2311.17132) over a grid of ``side`` x ``side`` tokens.

    A token sees its 3 x 3 window and the means of ``pool_ratio`` x ``pool_ratio`` blocks; all tokens where
    ``pool_ratio`` is 1. ``position_width`` is the inner width of the network that makes a bias of a relative position;
    ``pretrained_side`` the side that positions are measured by (default: ``side``).
    """

    module: ClassVar[str | None] = "AggregatedAttention"
    no_step: ClassVar[str] = "the tokens of a grid are read at once"
    fields_by_letter: ClassVar[Mapping[str, str]] = fields_of("d_m", "h", "d_h", "T", "M", "N_pos", "d_pos")
    lengths: ClassVar[Mapping[str, int]] = {"batch_size": 1}
    implementations: ClassVar[tuple[Implementation, ...]] = (
        Implementation("reference", "aggregated:reference", masks=False),
    )
    takes_values: ClassVar[bool] = False
    # positions are measured in parts of side - 1
    minimum: ClassVar[Mapping[str, int]] = {"side": 2, "pretrained_side": 2}
    divides: ClassVar[Mapping[str, str]] = {"num_heads": "d_model", "pool_ratio": "side"}

    d_model: int
    num_heads: int
    side: int
    pool_ratio: int
    position_width: int = 512
    pretrained_side: int | None = None

    @property
    def head_dim(self) -> int:
        """d_h: heads are as wide as the model together."""
        return self.d_model // self.num_heads

    @property
    def num_tokens(self) -> int:
        """T: the grid's tokens."""
        return self.side**2

    @property
    def num_pooled(self) -> int:
        """M: keys that stand for a block of tokens; 0 where nothing is pooled."""
        return (self.side // self.pool_ratio) ** 2 if self.pool_ratio > 1 else 0

    @property
    def num_positions(self) -> int:
        """N_pos: distinct relative positions of a query and a key, pooled where there are such."""
        return (2 * self.side - self.pool_ratio) ** 2

    def inputs(self, lengths: Mapping[str, int]) -> dict[str, Input]:
        """Return tokens (B, T, d_m), row by row of the grid."""
        return {"query": Input((lengths["batch_size"], self.num_tokens, self.d_model))}
