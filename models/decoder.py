"""Dense decoders of published cost tables: GPT-3 (arXiv 2005.14165), PaLM (2204.02311) and models between them."""

import torch
from jaxtyping import Int
from torch import Tensor, nn

from headcount.models.activations import gelu
from headcount.models.cache import KeyValueCache
from headcount.models.configs.base import AttentionConfig
from headcount.models.configs.decoder import DecoderConfig, Positions
from headcount.models.llama import GatedFeedForward, Llama, LlamaLayer
from headcount.models.norms import RMSNorm
from headcount.models.rotary import Rotary
from headcount.models.shapes import PaddingMask, Tokens
from headcount.models.transformer import FeedForward


class ParallelLayer(LlamaLayer):
    """y = Norm(x); x = x + SelfAttn(y) + FeedForward(y)."""

    def __init__(self, attention: AttentionConfig, feed_forward: nn.Module, norm: type[nn.Module]) -> None:
        super().__init__(attention, feed_forward, norm)
        del self.feed_forward_norm

    def forward(
        self, x: Tokens, rotary: Rotary | None, padding_mask: PaddingMask = None, cache: KeyValueCache | None = None
    ) -> Tokens:
        """Map (B, T, d_m) to (B, T, d_m), causal; ``padding_mask`` is True at padding."""
        y = self.self_attn_norm(x)
        return x + self.attend(y, rotary, padding_mask, cache) + self.feed_forward(y, padding_mask)


class DecoderOnly(Llama):
    """LLaMA's frame with the norms, feed-forward blocks, positions and output of ``config``."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config)
        self.norm = norm_type(config)(config.d_model)
        learned = config.positions == Positions.LEARNED
        self.position_embedding = nn.Embedding(config.context_len, config.d_model) if learned else None

    def make_layer(self, index: int) -> LlamaLayer:
        """Return layer ``index``."""
        config = self.config
        widths = config.d_model, config.d_ff
        block = GatedFeedForward(*widths) if config.gated else FeedForward(*widths, gelu, bias=config.bias)
        return (ParallelLayer if config.parallel else LlamaLayer)(config.layers[index], block, norm_type(config))

    def embed(self, tokens: Int[Tensor, "batch seq"], start: int) -> tuple[Tokens, Rotary | None]:
        """Return the embeddings of ``tokens``, with learned positions from ``start`` on or the rotary table."""
        if self.position_embedding is None:
            return super().embed(tokens, start)
        positions = torch.arange(tokens.shape[1], device=tokens.device) + start
        return self.embedding(tokens) + self.position_embedding(positions), None


def norm_type(config: DecoderConfig) -> type[nn.Module]:
    """Return the class of norms: LayerNorm where the model has biases, else RMSNorm."""
    return nn.LayerNorm if config.bias else RMSNorm
