"""Multi-head latent attention: sizes, forms and their validation. Importable without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from headcount.models.configs.base import AttentionConfig, Form, Implementation, fields_of, reference_and_fused


@dataclass(frozen=True, kw_only=True)
class MultiHeadLatentAttentionConfig(AttentionConfig):
    """MLA (arXiv 2405.04434): h heads whose keys and values come from one latent of width ``kv_rank`` per token.

    A head's query and key have ``head_dim`` elements without positions and ``rotary_dim`` that turn, one such key for
    all heads; its value has ``value_dim``. Queries come from a latent of width ``query_rank``; None: from the token.
    Unless given, ``kv_rank`` is 4 head_dim, ``rotary_dim`` head_dim / 2, made even, and ``value_dim`` head_dim: the
    paper's. ``bias``: of what compresses tokens, and of the output, as in the released code. ``form``: ``released``
    makes keys and values of every stored token; ``ideal`` absorbs these projections into queries and outputs, so that
    a step reads the latents alone. Both are the same function; the second does more work on whole sequences.
    """

    module: ClassVar[str | None] = "MultiHeadLatentAttention"
    fields_by_letter: ClassVar[Mapping[str, str]] = fields_of(
        "d_m", "h", "d_h", "d_r", "d_v", "d_c", "d_q", "bias", "form"
    )
    implementations: ClassVar[tuple[Implementation, ...]] = reference_and_fused("mla")
    # DTensor makes its grouped products whole again
    ideal_attributes: ClassVar[Mapping[str, Any]] = {"columns": ()}
    rotary: ClassVar[str | None] = "rotary_dim"
    takes_values: ClassVar[bool] = False
    columns: ClassVar[tuple[str, ...]] = ("q_proj", "q_rotary_proj", "k_proj", "v_proj")

    d_model: int
    num_heads: int
    head_dim: int | None = None
    rotary_dim: int | None = None
    value_dim: int | None = None
    kv_rank: int | None = None
    query_rank: int | None = None
    bias: bool = False
    form: Form | str = Form.RELEASED
    attention_dropout: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        if self.rotary_dim is None:
            # a comparison of a size that is a symbol would limit what a derivation holds for
            object.__setattr__(self, "rotary_dim", max(2, self.head_dim // 4 * 2))
        for field, value in {"value_dim": self.head_dim, "kv_rank": 4 * self.head_dim}.items():
            if getattr(self, field) is None:
                object.__setattr__(self, field, value)
