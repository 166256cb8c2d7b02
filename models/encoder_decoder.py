"""Encoder-decoder Transformer for translation, around any attention variant (arXiv 1706.03762)."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headcount.models.activations import relu
from headcount.models.attention import drop
from headcount.models.configs.base import ModelConfig
from headcount.models.shapes import KeyMask, QueryMask, Tokens
from headcount.models.transformer import Decoder, DecoderLayer, Encoder, EncoderLayer, LayerCaches


class DecoderState(NamedTuple):
    """State of a translation: caches of the decoder layers, and which source tokens are padding."""

    caches: list[LayerCaches]
    src_padding_mask: KeyMask

    @property
    def length(self) -> int:
        """Return the number of target tokens decoded so far."""
        return self.caches[0].own.length


class EncoderDecoder(nn.Module):
    """Post-norm, ReLU, sinusoidal positions; one embedding for source, target and output (section 3.4)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.encoder, self.decoder = self.stacks(config)
        self.output_proj = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.tie_weights()

    def stacks(self, config: ModelConfig) -> tuple[Encoder, Decoder]:
        """Return the layers of both sides."""
        encoder = Encoder(EncoderLayer(config, relu) for _ in range(config.num_encoder_layers))
        return encoder, Decoder(DecoderLayer(config, relu) for _ in range(config.num_decoder_layers))

    def tie_weights(self) -> None:
        """Make the output projection's weight the embedding's again, as after ``to_empty``."""
        self.output_proj.weight = self.embedding.weight

    def forward(
        self,
        src_tokens: Int[Tensor, "batch src"],
        tgt_tokens: Int[Tensor, "batch tgt"],
        src_padding_mask: KeyMask = None,
        tgt_padding_mask: QueryMask = None,
    ) -> Float[Tensor, "batch tgt vocab_size"]:
        """Return logits (B, T, V) of the token after each of ``tgt_tokens``; masks are True at padding."""
        memory = self.encoder(self._embed(src_tokens), src_padding_mask)
        out = self.decoder(self._embed(tgt_tokens), memory, tgt_padding_mask, src_padding_mask)
        return self.output_proj(out)

    @torch.no_grad()
    def encode(
        self, src_tokens: Int[Tensor, "batch src"], src_padding_mask: KeyMask = None, *, max_len: int
    ) -> DecoderState:
        """Encode the source (B, S), store its keys and values for each layer, and allocate ``max_len`` targets."""
        memory = self.encoder(self._embed(src_tokens), src_padding_mask)
        caches = [layer.make_caches(memory, max_len, src_padding_mask) for layer in self.decoder.layers]
        return DecoderState(caches, src_padding_mask)

    @torch.no_grad()
    def step(self, state: DecoderState, tgt_tokens: Int[Tensor, "batch new"]) -> Float[Tensor, "batch new vocab_size"]:
        """Return logits (B, T', V) of the token after each of T' new ``tgt_tokens``, which are appended to ``state``.

        One token at a time or many, they are the logits of the forward over all tokens so far. Raises
        ValueError beyond ``max_len`` tokens.
        """
        x = self._embed(tgt_tokens, state.length)
        for layer, caches in zip(self.decoder.layers, state.caches, strict=True):
            x = layer.step(x, caches, state.src_padding_mask)
        return self.output_proj(x)

    def _embed(self, tokens: Int[Tensor, "batch seq"], start: int = 0) -> Tokens:
        x = self.embedding(tokens) * math.sqrt(self.config.d_model)
        x = x + sinusoidal_positions(tokens.shape[1], self.config.d_model, tokens.device, start).to(x.dtype)
        return drop(x, self.config.dropout, self.training)


def sinusoidal_positions(
    seq_len: int | Tensor, d_model: int, device: torch.device | str | None = None, start: int = 0
) -> Float[Tensor, "seq d_model"]:
    """Return PE(t, 2i) = sin(t / 10000^(2i / d_m)), PE(t, 2i + 1) = cos(same) (section 3.5): (T, d_m), float32.

    t counts from ``start``. ``seq_len`` is a tensor while torch.jit traces.
    """
    even = torch.arange(0, d_model, 2, device=device, dtype=torch.float32)
    positions = torch.arange(start, start + seq_len, device=device)
    angles = positions[:, None] * torch.exp(even * (-math.log(10000.0) / d_model))
    # an odd d_model has one sine more than cosines
    return torch.stack((torch.sin(angles), torch.cos(angles)), dim=-1).flatten(1)[:, :d_model]
