"""Post-norm Transformer blocks around any attention variant (arXiv 1706.03762, section 3)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Bool, Float
from torch import Tensor, nn

from headcount.models.activations import Activation
from headcount.models.attention import drop
from headcount.models.build import make_module
from headcount.models.cache import KeyValueCache
from headcount.models.configs.encoder_decoder import EncoderDecoderConfig
from headcount.models.configs.masked_lm import MaskedLanguageModelConfig
from headcount.models.configs.mixture import TakesMixture
from headcount.models.mixture import MixtureFeedForward

TransformerConfig = EncoderDecoderConfig | MaskedLanguageModelConfig


class FeedForward(nn.Module):
    """y = activation(x W1 + b1) W2 + b2, with dropout on the hidden layer."""

    def __init__(self, d_model: int, d_ff: int, activation: Activation, dropout: float = 0.0) -> None:
        super().__init__()
        self.fc1 = nn.Linear(d_model, d_ff)
        self.fc2 = nn.Linear(d_ff, d_model)
        self.activation = activation
        self.dropout = dropout

    def forward(
        self, x: Float[Tensor, "batch seq d_model"], padding_mask: Bool[Tensor, "batch seq"] | None = None
    ) -> Float[Tensor, "batch seq d_model"]:
        """Each token of (B, T, d_m) by itself, padded ones too."""
        return self.fc2(drop(self.activation(self.fc1(x)), self.dropout, self.training))


def make_feed_forward(config: TakesMixture, activation: Activation, dropout: float = 0.0) -> nn.Module:
    """The feed-forward block of a model's layer: dense, or a mixture where ``config`` has experts for it."""
    if config.mixture is not None:
        return MixtureFeedForward(config.mixture, activation, dropout)
    return FeedForward(config.d_model, config.d_ff, activation, dropout)


class EncoderLayer(nn.Module):
    """x = Norm(x + SelfAttn(x)); x = Norm(x + FeedForward(x))."""

    def __init__(self, config: TransformerConfig, activation: Activation) -> None:
        super().__init__()
        self.self_attn = make_module(config.attention)
        self.self_attn_norm = nn.LayerNorm(config.d_model)
        self.feed_forward = make_feed_forward(config, activation, config.ffn_dropout)
        self.feed_forward_norm = nn.LayerNorm(config.d_model)
        self.dropout = config.dropout

    def forward(
        self,
        x: Float[Tensor, "batch src d_model"],
        padding_mask: Bool[Tensor, "batch src"] | None = None,
    ) -> Float[Tensor, "batch src d_model"]:
        """(B, S, d_m) to (B, S, d_m); ``padding_mask`` is True at padding."""
        attended = self.self_attn(x, key_padding_mask=padding_mask, query_padding_mask=padding_mask)
        x = self.self_attn_norm(x + drop(attended, self.dropout, self.training))
        return self.feed_forward_norm(x + drop(self.feed_forward(x, padding_mask), self.dropout, self.training))


@runtime_checkable
class DecoderCaches(Protocol):
    """What a decoder layer keeps while decoding."""

    @property
    def length(self) -> int:
        """Tokens taken so far."""

    @property
    def num_bytes(self) -> int:
        """Bytes that all of it holds."""


class LayerCaches(NamedTuple):
    """What a decoder layer keeps while decoding: its own tokens so far, and the encoder's output, projected once;
    and what either attention takes of that output besides."""

    self_attn: KeyValueCache
    cross_attn: KeyValueCache
    of_memory: tuple[Mapping[str, Tensor], Mapping[str, Tensor]] = ({}, {})

    @property
    def length(self) -> int:
        """Tokens taken so far."""
        return self.self_attn.length

    @property
    def num_bytes(self) -> int:
        """Bytes that all of it holds."""
        kept = (x for own in self.of_memory for x in own.values())
        return sum(x.numel() * x.element_size() for x in kept) + self.self_attn.num_bytes + self.cross_attn.num_bytes


class AfterCrossAttention(nn.Module):
    """How a decoder layer ends: x = Norm(x + CrossAttn(x)); x = Norm(x + FeedForward(x))."""

    def _finish(self, x: Tensor, read: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        x = self.cross_attn_norm(x + drop(read, self.dropout, self.training))
        return self.feed_forward_norm(x + drop(self.feed_forward(x, padding_mask), self.dropout, self.training))


class DecoderLayer(AfterCrossAttention):
    """As EncoderLayer, with causal self-attention and attention to the encoder's output after it."""

    def __init__(self, config: EncoderDecoderConfig, activation: Activation) -> None:
        super().__init__()
        self.self_attn = make_module(config.decoder_attention)
        self.self_attn_norm = nn.LayerNorm(config.d_model)
        self.cross_attn = make_module(config.decoder_attention)
        self.cross_attn_norm = nn.LayerNorm(config.d_model)
        self.feed_forward = make_feed_forward(config, activation, config.ffn_dropout)
        self.feed_forward_norm = nn.LayerNorm(config.d_model)
        self.dropout = config.dropout

    def forward(
        self,
        x: Float[Tensor, "batch tgt d_model"],
        memory: Float[Tensor, "batch src d_model"],
        tgt_padding_mask: Bool[Tensor, "batch tgt"] | None = None,
        src_padding_mask: Bool[Tensor, "batch src"] | None = None,
    ) -> Float[Tensor, "batch tgt d_model"]:
        """(B, T, d_m) to (B, T, d_m), reading ``memory`` (B, S, d_m); masks are True at padding."""
        of_own, of_cross = self._of_memory(memory, src_padding_mask)
        masks = {"key_padding_mask": tgt_padding_mask, "query_padding_mask": tgt_padding_mask}
        own = self.self_attn(x, causal=True, **masks, **of_own)
        x = self.self_attn_norm(x + drop(own, self.dropout, self.training))
        masks = {"key_padding_mask": src_padding_mask, "query_padding_mask": tgt_padding_mask}
        return self._finish(x, self.cross_attn(x, memory, **masks, **of_cross), tgt_padding_mask)

    def make_caches(
        self,
        memory: Float[Tensor, "batch src d_model"],
        max_len: int,
        src_padding_mask: Bool[Tensor, "batch src"] | None = None,
    ) -> LayerCaches:
        """Room for ``max_len`` target tokens, and the keys and values of ``memory`` (B, S, d_m)."""
        own = self.self_attn.make_cache(memory.shape[0], max_len, memory.device, memory.dtype)
        kept = self._of_memory(memory, src_padding_mask, for_steps=True)
        return LayerCaches(own, self.cross_attn.fill_cache(memory), kept)

    def step(
        self,
        x: Float[Tensor, "batch new d_model"],
        caches: LayerCaches,
        src_padding_mask: Bool[Tensor, "batch src"] | None = None,
    ) -> Float[Tensor, "batch new d_model"]:
        """As ``forward`` for the tokens behind those in ``caches``, which takes them in."""
        of_own, of_cross = caches.of_memory
        own = self.self_attn(x, causal=True, cache=caches.self_attn, **of_own)
        x = self.self_attn_norm(x + drop(own, self.dropout, self.training))
        read = self.cross_attn(x, key_padding_mask=src_padding_mask, cache=caches.cross_attn, **of_cross)
        return self._finish(x, read)

    def _of_memory(self, memory, padding_mask, **how):
        return tuple(layer.of_memory(memory, padding_mask, **how) for layer in (self.self_attn, self.cross_attn))


class Encoder(nn.Module):
    """A stack of encoder layers, without a norm of its own."""

    def __init__(self, layers: Iterable[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(
        self,
        x: Float[Tensor, "batch src d_model"],
        padding_mask: Bool[Tensor, "batch src"] | None = None,
    ) -> Float[Tensor, "batch src d_model"]:
        """(B, S, d_m) to (B, S, d_m); ``padding_mask`` is True at padding."""
        for layer in self.layers:
            x = layer(x, padding_mask)
        return x


class Decoder(nn.Module):
    """A stack of decoder layers, without a norm of its own."""

    def __init__(self, layers: Iterable[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(
        self,
        x: Float[Tensor, "batch tgt d_model"],
        memory: Float[Tensor, "batch src d_model"],
        tgt_padding_mask: Bool[Tensor, "batch tgt"] | None = None,
        src_padding_mask: Bool[Tensor, "batch src"] | None = None,
    ) -> Float[Tensor, "batch tgt d_model"]:
        """(B, T, d_m) to (B, T, d_m), reading ``memory`` (B, S, d_m); masks are True at padding."""
        for layer in self.layers:
            x = layer(x, memory, tgt_padding_mask, src_padding_mask)
        return x

    def make_caches(
        self,
        memory: Float[Tensor, "batch src d_model"],
        max_len: int,
        src_padding_mask: Bool[Tensor, "batch src"] | None = None,
    ) -> list[DecoderCaches]:
        """Caches of every layer, for decoding up to ``max_len`` tokens that read ``memory`` (B, S, d_m)."""
        return [layer.make_caches(memory, max_len, src_padding_mask) for layer in self.layers]

    def step(
        self,
        x: Float[Tensor, "batch new d_model"],
        caches: Sequence[DecoderCaches],
        src_padding_mask: Bool[Tensor, "batch src"] | None = None,
    ) -> Float[Tensor, "batch new d_model"]:
        """As ``forward`` for the tokens behind those in ``caches``, which take them in."""
        for layer, own in zip(self.layers, caches, strict=True):
            x = layer.step(x, own, src_padding_mask)
        return x
