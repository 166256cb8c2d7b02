"""Masked language model, a medium RoBERTa (arXiv 1907.11692) around any attention variant."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headcount.models.activations import gelu
from headcount.models.attention import drop
from headcount.models.configs.masked_lm import MaskedLanguageModelConfig
from headcount.models.shapes import PaddingMask, Tokens
from headcount.models.transformer import Encoder, EncoderLayer

RESERVED_POSITIONS = 2


class LanguageModelHead(nn.Module):
    """logits = Norm(GELU(x W + b)) W_vocab + b_vocab."""

    def __init__(self, d_model: int, vocab_size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(d_model, d_model)
        self.norm = nn.LayerNorm(d_model)
        self.output_proj = nn.Linear(d_model, vocab_size)

    def forward(self, x: Tokens) -> Float[Tensor, "batch seq vocab_size"]:
        """Map (B, T, d_m) to (B, T, V)."""
        return self.output_proj(self.norm(gelu(self.dense(x))))


class MaskedLanguageModel(nn.Module):
    """Post-norm encoder with GELU, learned positions, a norm on the embeddings and a tied output with a bias.

    The first two rows of the position table are reserved, so T tokens use rows 2..T+1.
    """

    def __init__(self, config: MaskedLanguageModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.position_embedding = nn.Embedding(config.max_positions, config.d_model)
        self.embedding_norm = nn.LayerNorm(config.d_model)
        self.encoder = Encoder(EncoderLayer(config, gelu) for _ in range(config.num_layers))
        self.lm_head = LanguageModelHead(config.d_model, config.vocab_size)
        self.tie_weights()

    def tie_weights(self) -> None:
        """Make the output projection's weight the embedding's again, as after ``to_empty``."""
        self.lm_head.output_proj.weight = self.embedding.weight

    def forward(
        self, tokens: Int[Tensor, "batch seq"], padding_mask: PaddingMask = None
    ) -> Float[Tensor, "batch seq vocab_size"]:
        """Return logits (B, T, V) of each of ``tokens``; ``padding_mask`` is True at padding."""
        positions = torch.arange(tokens.shape[1], device=tokens.device) + RESERVED_POSITIONS
        x = self.embedding_norm(self.embedding(tokens) + self.position_embedding(positions))
        x = self.encoder(drop(x, self.config.dropout, self.training), padding_mask)
        return self.lm_head(x)
