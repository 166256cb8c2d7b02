"""Multi-head latent attention: sizes, forms and their validation. Importable without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from headcount.models.configs.base import (
    Arm,
    AttentionConfig,
    ByForm,
    ConfigError,
    Form,
    at_least,
    named,
    probability,
)


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

    variant: ClassVar[str] = "mla"
    file: ClassVar[str] = ByForm(released="mla", ideal="mla_ideal")
    module: ClassVar[str | None] = ByForm(released="MultiHeadLatentAttention", ideal="IdealMultiHeadLatentAttention")
    fields_by_letter: ClassVar[Mapping[str, str]] = {
        "d_m": "d_model",
        "h": "num_heads",
        "d_h": "head_dim",
        "d_r": "rotary_dim",
        "d_v": "value_dim",
        "d_c": "kv_rank",
        "d_q": "query_rank",
        "bias": "bias",
    }
    arms: ClassVar[tuple[Arm, ...]] = ByForm(
        released=(Arm("reference", "mla:reference", timed=False), Arm("fused", "mla:fused")),
        ideal=(Arm("reference", "mla_ideal:reference", timed=False), Arm("fused", "mla_ideal:fused")),
    )
    rotary: ClassVar[str | None] = "rotary_dim"
    takes_values: ClassVar[bool] = False

    d_model: int
    num_heads: int
    head_dim: int | None = None
    rotary_dim: int | None = None
    value_dim: int | None = None
    kv_rank: int | None = None
    query_rank: int | None = None
    bias: bool = False
    form: str = Form.RELEASED
    attention_dropout: float = 0.0

    def __post_init__(self):
        at_least(1, d_model=self.d_model, num_heads=self.num_heads)
        probability(attention_dropout=self.attention_dropout)
        named(self, form=Form)
        if self.head_dim is None and self.d_model % self.num_heads:
            raise ConfigError(
                f"num_heads must divide d_model, and {self.num_heads} does not divide {self.d_model}; "
                "choose another num_heads or set head_dim"
            )
        self._derive("head_dim", self.d_model // self.num_heads)
        self._derive("rotary_dim", max(2, self.head_dim // 4 * 2))
        self._derive("value_dim", self.head_dim)
        self._derive("kv_rank", 4 * self.head_dim)
        at_least(1, head_dim=self.head_dim, rotary_dim=self.rotary_dim, value_dim=self.value_dim, kv_rank=self.kv_rank)
        if self.query_rank is not None:
            at_least(1, query_rank=self.query_rank)

    def _derive(self, field: str, value: int) -> None:
        if getattr(self, field) is None:
            object.__setattr__(self, field, value)


CONFIG = MultiHeadLatentAttentionConfig

PRESETS = {"mla-llm-s": {"like": "llm-s"}}

# the attention of DeepSeek-V2-Lite, whose queries have no latent
_LITE = {"d_model": 2048, "num_heads": 16, "head_dim": 128}
LAYERS = {"mla-v2-lite": _LITE, "mla-v2-lite-ideal": {**_LITE, "form": "ideal"}}
