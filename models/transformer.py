"""Post-norm Transformer blocks around any attention variant (arXiv 1706.03762, section 3)."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from headcount.models.activations import Activation
from headcount.models.attention import drop
from headcount.models.build import make_module
from headcount.models.cache import KeyValueCache, WindowCache
from headcount.models.configs.moe_ffn import TakesMixture
from headcount.models.moe_ffn import MixtureFeedForward
from headcount.models.shapes import KeyMask, PaddingMask, Queries, QueryMask, Sources, Tokens


class FeedForward(nn.Module):
    """y = activation(x W1 + b1) W2 + b2, with dropout on the hidden layer; b1 and b2 only with ``bias``.

    ``width``: that of y; 0: that of x, ``d_model``.
    """

    def __init__(
        self, d_model: int, d_ff: int, activation: Activation, dropout: float = 0.0, bias: bool = True, width: int = 0
    ) -> None:
        super().__init__()
        self.fc1 = nn.Linear(d_model, d_ff, bias=bias)
        self.fc2 = nn.Linear(d_ff, width or d_model, bias=bias)
        self.activation = activation
        self.dropout = dropout

    def forward(
        self, x: Float[Tensor, "*rows d_model"], padding_mask: PaddingMask = None
    ) -> Float[Tensor, "*rows width"]:
        """Map each row independently, those of padded tokens too."""
        return self.fc2(drop(self.activation(self.fc1(x)), self.dropout, self.training))


def make_feed_forward(config: TakesMixture, activation: Activation, dropout: float = 0.0) -> nn.Module:
    """Return the feed-forward block of a model's layer: dense, or a mixture where ``config`` has experts for it."""
    if config.mixture is not None:
        return MixtureFeedForward(config.mixture, activation, dropout)
    return FeedForward(config.d_model, config.d_ff, activation, dropout)


class EncoderLayer(nn.Module):
    """x = Norm(x + Mix(x)); x = Norm(x + FeedForward(x)), with self-attention in ``mix``; a subclass may mix otherwise.

    ``causal`` layers are a decoder's: they have cross-attention too. ``mixer``: arguments of ``add_mixer``. The order
    of modules decides their initial values.
    """

    causal = False

    def __init__(self, config: TakesMixture, activation: Activation, *mixer: int) -> None:
        super().__init__()
        self.dropout = config.dropout
        self.add_mixer(config, *mixer)
        if self.causal:
            self.cross_attn = make_module(config.decoder_attention)
            self.cross_attn_norm = nn.LayerNorm(config.d_model)
        self.feed_forward = make_feed_forward(config, activation, config.ffn_dropout)
        self.feed_forward_norm = nn.LayerNorm(config.d_model)

    def add_mixer(self, config: TakesMixture) -> None:
        """Add the modules of ``mix``."""
        self.self_attn = make_module(config.decoder_attention if self.causal else config.attention)
        self.self_attn_norm = nn.LayerNorm(config.d_model)

    def forward(self, x: Sources, padding_mask: KeyMask = None) -> Sources:
        """Map (B, S, d_m) to (B, S, d_m); ``padding_mask`` is True at padding."""
        return self.feed(self.mix(x, padding_mask), padding_mask)

    def mix(self, x: Tensor, padding_mask: Tensor | None = None, cache: KeyValueCache | None = None, **extra) -> Tensor:
        """Return self-attention of (B, T, d_m), with residual and norm."""
        masks = {"causal": self.causal, "key_padding_mask": padding_mask, "query_padding_mask": padding_mask}
        return self.residual(x, self.self_attn(x, cache=cache, **masks, **extra), self.self_attn_norm)

    def residual(self, x: Tensor, update: Tensor, norm: nn.LayerNorm) -> Tensor:
        """Return norm(x + update), with dropout of the update."""
        return norm(x + drop(update, self.dropout, self.training))

    def feed(self, x: Tensor, padding_mask: Tensor | None) -> Tensor:
        """Return the feed-forward block of (B, T, d_m), with residual and norm."""
        return self.residual(x, self.feed_forward(x, padding_mask), self.feed_forward_norm)


class LayerCaches(NamedTuple):
    """State of a decoder layer while decoding: caches of target tokens and of the encoder output, projected once.

    ``memory_arguments``: extra arguments of self-attention and cross-attention computed from the encoder output.
    """

    own: KeyValueCache | WindowCache
    cross_attn: KeyValueCache
    memory_arguments: tuple[Mapping[str, Tensor], Mapping[str, Tensor]] = ({}, {})


class DecoderLayer(EncoderLayer):
    """As EncoderLayer, causal, with attention to the encoder's output between ``mix`` and the feed-forward block."""

    causal = True

    def forward(
        self, x: Queries, memory: Sources, tgt_padding_mask: QueryMask = None, src_padding_mask: KeyMask = None
    ) -> Queries:
        """Map (B, T, d_m) to (B, T, d_m), reading ``memory`` (B, S, d_m); masks are True at padding."""
        of_own, of_cross = self.memory_arguments(memory, src_padding_mask)
        x = self.mix(x, tgt_padding_mask, **of_own)
        masks = {"key_padding_mask": src_padding_mask, "query_padding_mask": tgt_padding_mask}
        x = self.residual(x, self.cross_attn(x, memory, **masks, **of_cross), self.cross_attn_norm)
        return self.feed(x, tgt_padding_mask)

    def make_caches(self, memory: Sources, max_len: int, src_padding_mask: KeyMask = None) -> LayerCaches:
        """Return an empty cache of ``max_len`` target tokens, and the keys and values of ``memory`` (B, S, d_m)."""
        own = self.make_own_cache(memory, max_len)
        memory_arguments = self.memory_arguments(memory, src_padding_mask, for_steps=True)
        return LayerCaches(own, self.cross_attn.fill_cache(memory), memory_arguments)

    def step(
        self, x: Float[Tensor, "batch new d_model"], caches: LayerCaches, src_padding_mask: KeyMask = None
    ) -> Float[Tensor, "batch new d_model"]:
        """Run ``forward`` for the tokens after those in ``caches``, and append them there."""
        of_own, of_cross = caches.memory_arguments
        x = self.mix(x, cache=caches.own, **of_own)
        read = self.cross_attn(x, key_padding_mask=src_padding_mask, cache=caches.cross_attn, **of_cross)
        return self.feed(self.residual(x, read, self.cross_attn_norm), None)

    def make_own_cache(self, memory: Tensor, max_len: int) -> KeyValueCache | WindowCache:
        """Return an empty cache of ``max_len`` tokens for ``mix``."""
        return self.self_attn.make_cache(memory.shape[0], max_len, memory.device, memory.dtype)

    def memory_arguments(self, memory: Tensor, padding_mask: Tensor | None, **options) -> tuple[Mapping, Mapping]:
        """Return extra arguments of ``mix`` and of cross-attention, tensors by name, from ``memory`` (B, S, d_m)."""
        own = self.self_attn.memory_arguments(memory, padding_mask, **options)
        return own, self.cross_attn.memory_arguments(memory, padding_mask, **options)


class Encoder(nn.Module):
    """A stack of layers, without a norm at the end."""

    def __init__(self, layers: Iterable[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tokens, *context: Tensor | None) -> Tensor:
        """Map (B, T, d_m) to (B, T, d_m); ``context`` are the other arguments of each layer."""
        for layer in self.layers:
            x = layer(x, *context)
        return x


class Decoder(Encoder):
    """A stack of decoder layers, whose ``context`` is the encoder output (B, S, d_m) and both padding masks."""
