"""JetMoE (arXiv 2404.07413): LLaMA's layers around attention experts and feed-forward experts, with a tied output."""

from headcount.models.configs.jetmoe import JetMoEConfig
from headcount.models.llama import Llama


class JetMoE(Llama):
    """LLaMA with mixture feed-forward blocks, other norm epsilons, and the output tied to the embedding."""

    def __init__(self, config: JetMoEConfig) -> None:
        super().__init__(config)
        for layer in self.layers:
            layer.self_attn_norm.eps = layer.feed_forward_norm.eps = config.block_norm_eps
        self.norm.eps = config.final_norm_eps
