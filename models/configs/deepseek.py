"""DeepSeek-V2 and V3: sizes and their validation. Importable without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from headcount.models.configs.base import check_range, fields_of
from headcount.models.configs.llama import LlamaConfig
from headcount.models.configs.moe_ffn import MixtureFeedForwardConfig


@dataclass(frozen=True, kw_only=True)
class DeepSeekConfig(LlamaConfig):
    """A LLaMA whose later layers have shared and routed experts in place of a feed-forward block.

    ``num_dense_layers`` layers of width ``d_ff`` come first; then ``num_shared_experts`` experts and ``ffn_top_k`` of
    ``ffn_num_experts``, each of width ``expert_d_ff``. ``num_predicted``: tokens after the next one that each token
    predicts too (multi-token prediction).
    """

    module: ClassVar[str | None] = "DeepSeek"
    equal_blocks: ClassVar[bool] = False
    fields_by_letter: ClassVar[Mapping[str, str]] = fields_of(
        "d_m", "F", "V", "E_ff", "K_ff", "N_dense", "F_e", "E_s", "N_mtp"
    )
    minimum: ClassVar[Mapping[str, int]] = {**LlamaConfig.minimum, "ffn_num_experts": 1, "num_predicted": 0}

    num_dense_layers: int
    expert_d_ff: int
    num_shared_experts: int
    num_predicted: int = 0
    context_len: int = 4096
    rope_theta: float = 10000.0

    def __post_init__(self):
        super().__post_init__()
        check_range("num_dense_layers", self.num_dense_layers, 1, self.num_layers)

    def length_letters(self, lengths: Mapping[str, int]) -> dict[str, int]:
        """Return input lengths by letter. Raises ConfigError where the last predictor would have no token."""
        check_range("seq_len", lengths["seq_len"], self.num_predicted + 1)
        return super().length_letters(lengths)

    @property
    def mixture(self) -> MixtureFeedForwardConfig:
        """The routed experts of a layer that has some."""
        return self.mixture_of(self.d_model, self.expert_d_ff)
