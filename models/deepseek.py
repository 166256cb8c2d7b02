"""DeepSeek-V2 and V3 (arXiv 2405.04434, 2412.19437): LLaMA's layers, the later ones of shared and routed experts.

Gates are softmax values of the selected experts' logits; V3's sigmoid, and its limits to groups of experts, have the
same products. Without multi-token prediction.
"""

from jaxtyping import Bool, Float
from torch import Tensor

from headcount.models.configs.deepseek import DeepSeekConfig
from headcount.models.llama import GatedFeedForward, Llama, LlamaLayer
from headcount.models.moe_ffn import MixtureFeedForward


class SharedAndRoutedExperts(MixtureFeedForward):
    """y = f_shared(x) + sum_{i in G(x)} w_i f_i(x); all shared experts are one block."""

    def __init__(self, config: DeepSeekConfig) -> None:
        super().__init__(config.mixture)
        self.shared_experts = GatedFeedForward(config.d_model, config.num_shared_experts * config.expert_d_ff)

    def forward(
        self, x: Float[Tensor, "batch seq d_model"], padding_mask: Bool[Tensor, "batch seq"] | None = None
    ) -> Float[Tensor, "batch seq d_model"]:
        """Map each token of (B, T, d_m) independently."""
        return super().forward(x, padding_mask) + self.shared_experts(x)


class DeepSeek(Llama):
    """LLaMA with dense layers first, and shared and routed experts in the others."""

    def make_layer(self, index: int) -> LlamaLayer:
        """Return layer ``index``."""
        config = self.config
        is_dense = index < config.num_dense_layers
        block = GatedFeedForward(config.d_model, config.d_ff) if is_dense else SharedAndRoutedExperts(config)
        return LlamaLayer(config.layers[index], block)
