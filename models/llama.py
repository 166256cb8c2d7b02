"""Pre-norm causal language model of the LLaMA family (arXiv 2302.13971) around MHA or MoH."""

from collections.abc import Callable, Sequence

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from headcount.models.build import make_module
from headcount.models.cache import KeyValueCache
from headcount.models.configs.base import AttentionConfig, CausalLanguageModelConfig
from headcount.models.moe_ffn import MixtureFeedForward
from headcount.models.norms import RMSNorm
from headcount.models.rotary import Rotary, rotary_table
from headcount.models.shapes import PaddingMask, Tokens


class GatedFeedForward(nn.Module):
    """y = (SiLU(x W_gate) * x W_up) W_down, SwiGLU (arXiv 2002.05202), without biases."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(d_model, d_ff, bias=False)
        self.up_proj = nn.Linear(d_model, d_ff, bias=False)
        self.down_proj = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x: Tokens, padding_mask: PaddingMask = None) -> Tokens:
        """Map each token of (B, T, d_m) independently, padded ones too."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaLayer(nn.Module):
    """x = x + SelfAttn(Norm(x)); x = x + FeedForward(Norm(x))."""

    def __init__(
        self, attention: AttentionConfig, feed_forward: nn.Module, norm: Callable[[int], nn.Module] = RMSNorm
    ) -> None:
        super().__init__()
        self.self_attn_norm = norm(attention.d_model)
        self.self_attn = make_module(attention)
        self.feed_forward_norm = norm(attention.d_model)
        self.feed_forward = feed_forward

    def forward(
        self, x: Tokens, rotary: Rotary | None, padding_mask: PaddingMask = None, cache: KeyValueCache | None = None
    ) -> Tokens:
        """Map (B, T, d_m) to (B, T, d_m), causal; ``padding_mask`` is True at padding."""
        x = x + self.attend(self.self_attn_norm(x), rotary, padding_mask, cache)
        return x + self.feed_forward(self.feed_forward_norm(x), padding_mask)

    def attend(
        self, x: Tensor, rotary: Rotary | None, padding_mask: Tensor | None, cache: KeyValueCache | None
    ) -> Tokens:
        """Return causal self-attention of (B, T, d_m)."""
        masks = {"key_padding_mask": padding_mask, "query_padding_mask": padding_mask}
        return self.self_attn(x, causal=True, rotary=rotary, cache=cache, **masks)


class Llama(nn.Module):
    """RMSNorm before each block and at the end, rotary positions, SwiGLU; other models replace its layers."""

    def __init__(self, config: CausalLanguageModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.layers = nn.ModuleList(self.make_layer(i) for i in range(config.num_layers))
        self.norm = RMSNorm(config.d_model)
        self.output_proj = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.tie_weights()

    def make_layer(self, index: int) -> LlamaLayer:
        """Return layer ``index``."""
        config = self.config
        block = MixtureFeedForward(config.mixture) if config.mixture else GatedFeedForward(config.d_model, config.d_ff)
        return LlamaLayer(config.layers[index], block)

    def tie_weights(self) -> None:
        """Make the output projection's weight the embedding's again, as after ``to_empty``, where they are tied."""
        if self.config.tied:
            self.output_proj.weight = self.embedding.weight

    def forward(
        self,
        tokens: Int[Tensor, "batch seq"],
        padding_mask: PaddingMask = None,
        caches: Sequence[KeyValueCache] | None = None,
    ) -> Float[Tensor, "batch seq vocab_size"]:
        """Return logits (B, T, V) of the token after each of ``tokens``; ``padding_mask`` is True at padding.

        With ``caches``, one for each layer, ``tokens`` come after those already in them, and none is padding:
        ValueError for a ``padding_mask`` together with them.
        """
        if caches is not None and padding_mask is not None:
            raise ValueError("padding_mask is for whole sequences: with caches every token is real")
        return self.output_proj(self.norm(self.run_layers(tokens, padding_mask, caches)))

    def run_layers(self, tokens: Tensor, padding_mask: Tensor | None, caches: Sequence[KeyValueCache] | None) -> Tokens:
        """Return the output of the last layer."""
        x, rotary = self.embed(tokens, caches[0].length if caches else 0)
        for i, layer in enumerate(self.layers):
            x = layer(x, rotary, padding_mask, caches[i] if caches else None)
        return x

    def embed(self, tokens: Int[Tensor, "batch seq"], start: int) -> tuple[Tokens, Rotary | None]:
        """Return the embeddings of ``tokens``, and the rotary table of their positions from ``start`` on."""
        x, width = self.embedding(tokens), self.config.attention.rotary_width
        options = {"start": start, "device": x.device, "dtype": x.dtype}
        return x, rotary_table(tokens.shape[1], width, self.config.rope_theta, **options)

    def make_caches(self, batch_size: int, max_len: int) -> list[KeyValueCache]:
        """Return an empty cache for each layer, with the device and dtype of the weights."""
        return [layer.self_attn.make_cache(batch_size, max_len) for layer in self.layers]
