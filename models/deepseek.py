"""DeepSeek-V2 and V3 (arXiv 2405.04434, 2412.19437): LLaMA's layers, the later ones of shared and routed experts.

Gates are softmax values of the selected experts' logits; V3's sigmoid, and its limits to groups of experts, have the
same products.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor, nn

from headcount.models.cache import KeyValueCache
from headcount.models.configs.deepseek import DeepSeekConfig
from headcount.models.llama import GatedFeedForward, Llama, LlamaLayer
from headcount.models.moe_ffn import MixtureFeedForward
from headcount.models.norms import RMSNorm
from headcount.models.rotary import Rotary
from headcount.models.shapes import PaddingMask, Tokens


class SharedAndRoutedExperts(MixtureFeedForward):
    """y = f_shared(x) + sum_{i in G(x)} w_i f_i(x); all shared experts are one block."""

    def __init__(self, config: DeepSeekConfig) -> None:
        super().__init__(config.mixture)
        self.shared_experts = GatedFeedForward(config.d_model, config.num_shared_experts * config.expert_d_ff)

    def forward(self, x: Tokens, padding_mask: PaddingMask = None) -> Tokens:
        """Map each token of (B, T, d_m) independently."""
        return super().forward(x, padding_mask) + self.shared_experts(x)


class Predictor(nn.Module):
    """h' = Layer([Norm(h); Norm(e)] W), with e the embeddings of the tokens before those predicted (V3's Eq. 21-22).

    ``norm`` comes before the output projection.
    """

    def __init__(self, layer: LlamaLayer, d_model: int) -> None:
        super().__init__()
        self.hidden_norm = RMSNorm(d_model)
        self.embedding_norm = RMSNorm(d_model)
        self.proj = nn.Linear(2 * d_model, d_model, bias=False)
        self.layer = layer
        self.norm = RMSNorm(d_model)

    def forward(self, hidden: Tokens, embedded: Tokens, rotary: Rotary, padding_mask: PaddingMask = None) -> Tokens:
        """Map (B, T, d_m) to (B, T, d_m), causal; ``padding_mask`` is True at padding."""
        both = torch.cat((self.hidden_norm(hidden), self.embedding_norm(embedded)), dim=-1)
        return self.layer(self.proj(both), rotary, padding_mask)


class DeepSeek(Llama):
    """LLaMA with dense layers first, and shared and routed experts in the others."""

    def __init__(self, config: DeepSeekConfig) -> None:
        super().__init__(config)
        last = config.num_layers - 1
        self.predictors = nn.ModuleList(
            Predictor(self.make_layer(last), config.d_model) for _ in range(config.num_predicted)
        )

    def make_layer(self, index: int) -> LlamaLayer:
        """Return layer ``index``."""
        config = self.config
        is_dense = index < config.num_dense_layers
        block = GatedFeedForward(config.d_model, config.d_ff) if is_dense else SharedAndRoutedExperts(config)
        return LlamaLayer(config.layers[index], block)

    def forward(
        self,
        tokens: Int[Tensor, "batch seq"],
        padding_mask: PaddingMask = None,
        caches: Sequence[KeyValueCache] | None = None,
    ) -> Tensor | tuple[Tensor, ...]:
        """Return logits as Llama; with predictors and no ``caches`` a tuple: after these, for k = 1, 2, … the logits of
        token i + k + 1 at each of the first T - k tokens i.
        """
        if not self.predictors or caches is not None:
            return super().forward(tokens, padding_mask, caches)
        x = self.run_layers(tokens, padding_mask, None)
        logits = [self.output_proj(self.norm(x))]
        for k, predictor in enumerate(self.predictors, 1):
            hidden = None if padding_mask is None else padding_mask[:, k:]
            x = predictor(x[:, :-1], *self.embed(tokens[:, k:], 0), hidden)
            logits.append(self.output_proj(predictor.norm(x)))
        return tuple(logits)
