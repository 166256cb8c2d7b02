"""Pre-norm causal language model of the LLaMA family (arXiv 2302.13971) around MHA or MoH."""

from collections.abc import Sequence

import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headcount.models.build import make_module
from headcount.models.cache import KeyValueCache
from headcount.models.configs.base import AttentionConfig
from headcount.models.configs.llama import LlamaConfig
from headcount.models.moe_ffn import MixtureFeedForward
from headcount.models.norms import RMSNorm
from headcount.models.rotary import Rotary, rotary_table


class GatedFeedForward(nn.Module):
    """y = (SiLU(x W_gate) * x W_up) W_down, SwiGLU (arXiv 2002.05202), without biases."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(d_model, d_ff, bias=False)
        self.up_proj = nn.Linear(d_model, d_ff, bias=False)
        self.down_proj = nn.Linear(d_ff, d_model, bias=False)

    def forward(
        self, x: Float[Tensor, "batch seq d_model"], padding_mask: Bool[Tensor, "batch seq"] | None = None
    ) -> Float[Tensor, "batch seq d_model"]:
        """Map each token of (B, T, d_m) independently, padded ones too."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaLayer(nn.Module):
    """x = x + SelfAttn(Norm(x)); x = x + FeedForward(Norm(x))."""

    def __init__(self, config: LlamaConfig, attention: AttentionConfig) -> None:
        super().__init__()
        self.self_attn_norm = RMSNorm(config.d_model)
        self.self_attn = make_module(attention)
        self.feed_forward_norm = RMSNorm(config.d_model)
        self.feed_forward = (
            MixtureFeedForward(config.mixture) if config.mixture else GatedFeedForward(config.d_model, config.d_ff)
        )

    def forward(
        self,
        x: Float[Tensor, "batch seq d_model"],
        rotary: Rotary,
        padding_mask: Bool[Tensor, "batch seq"] | None = None,
        cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "batch seq d_model"]:
        """Map (B, T, d_m) to (B, T, d_m), causal; ``padding_mask`` is True at padding."""
        x = x + self.self_attn(
            self.self_attn_norm(x),
            causal=True,
            key_padding_mask=padding_mask,
            query_padding_mask=padding_mask,
            rotary=rotary,
            cache=cache,
        )
        return x + self.feed_forward(self.feed_forward_norm(x), padding_mask)


class Llama(nn.Module):
    """RMSNorm before each block and at the end, rotary positions, SwiGLU, an output projection that is not tied."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.layers = nn.ModuleList(LlamaLayer(config, attention) for attention in config.layers)
        self.norm = RMSNorm(config.d_model)
        self.output_proj = nn.Linear(config.d_model, config.vocab_size, bias=False)

    def forward(
        self,
        tokens: Int[Tensor, "batch seq"],
        padding_mask: Bool[Tensor, "batch seq"] | None = None,
        caches: Sequence[KeyValueCache] | None = None,
    ) -> Float[Tensor, "batch seq vocab_size"]:
        """Return logits (B, T, V) of the token after each of ``tokens``; ``padding_mask`` is True at padding.

        With ``caches``, one for each layer, ``tokens`` come after those already in them, and none is padding:
        ValueError for a ``padding_mask`` together with them.
        """
        if caches is not None and padding_mask is not None:
            raise ValueError("padding_mask is for whole sequences: with caches every token is real")
        x = self.embedding(tokens)
        rotary = rotary_table(
            tokens.shape[1],
            self.config.attention.rotary_width,
            self.config.rope_theta,
            start=caches[0].length if caches else 0,
            device=tokens.device,
            dtype=x.dtype,
        )
        for i, layer in enumerate(self.layers):
            x = layer(x, rotary, padding_mask, caches[i] if caches else None)
        return self.output_proj(self.norm(x))

    def make_caches(self, batch_size: int, max_len: int) -> list[KeyValueCache]:
        """Return an empty cache for each layer, with the device and dtype of the weights."""
        return [layer.self_attn.make_cache(batch_size, max_len) for layer in self.layers]
