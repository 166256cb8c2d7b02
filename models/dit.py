"""Diffusion Transformer (DiT, arXiv 2212.09748) with adaLN-Zero, around MHA or MoH."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from headcount.models.activations import gelu_tanh, silu
from headcount.models.build import make_module
from headcount.models.configs.base import AttentionConfig
from headcount.models.configs.dit import DiffusionTransformerConfig
from headcount.models.encoder_decoder import sinusoidal_positions
from headcount.models.shapes import Tokens
from headcount.models.transformer import FeedForward, make_feed_forward


class Modulation(nn.Module):
    """``parts`` vectors from the condition c: SiLU(c) W + b, split. Starts at zero, so that a block is the identity."""

    def __init__(self, d_model: int, parts: int) -> None:
        super().__init__()
        self.parts = parts
        self.proj = nn.Linear(d_model, parts * d_model)

    def initial_values(self) -> dict[str, Tensor]:
        """Return zeros (adaLN-Zero)."""
        return {f"proj.{name}": torch.zeros(p.shape) for name, p in self.proj.named_parameters()}

    def forward(self, condition: Float[Tensor, "batch d_model"]) -> tuple[Float[Tensor, "batch 1 d_model"], ...]:
        """Map (B, d_m) to ``parts`` of (B, 1, d_m)."""
        return self.proj(F.silu(condition))[:, None].chunk(self.parts, dim=-1)


def modulate(x: Tensor, norm: nn.LayerNorm, shift: Tensor, scale: Tensor) -> Tensor:
    """Return norm(x) (1 + scale) + shift."""
    return norm(x) * (1 + scale) + shift


def plain_norm(d_model: int) -> nn.LayerNorm:
    """Return a LayerNorm without scale and shift, which come from the condition."""
    return nn.LayerNorm(d_model, eps=1e-6, elementwise_affine=False)


class TimestepEmbedding(FeedForward):
    """Cosines and sines of the time step at frequencies 10000^(-2i / d_t), through a two-layer MLP with SiLU."""

    def __init__(self, frequency_width: int, d_model: int) -> None:
        super().__init__(frequency_width, d_model, silu, width=d_model)
        self.half = frequency_width // 2

    def forward(self, timesteps: Int[Tensor, "batch"]) -> Float[Tensor, "batch d_model"]:
        """Map (B,) to (B, d_m)."""
        order = torch.arange(self.half, device=timesteps.device, dtype=torch.float32)
        angles = timesteps[:, None] * (10000.0 ** (order * (-1.0 / self.half)))[None]
        waves = torch.cat((torch.cos(angles), torch.sin(angles)), dim=-1)
        return super().forward(waves.to(self.fc1.weight.dtype))


class DiTBlock(nn.Module):
    """x = x + gate * SelfAttn(modulated x); x = x + gate * FeedForward(modulated x)."""

    def __init__(self, config: DiffusionTransformerConfig, attention: AttentionConfig) -> None:
        super().__init__()
        self.modulation = Modulation(config.d_model, 6)
        self.self_attn_norm = plain_norm(config.d_model)
        self.self_attn = make_module(attention)
        self.feed_forward_norm = plain_norm(config.d_model)
        self.feed_forward = make_feed_forward(config, gelu_tanh)

    def forward(self, x: Tokens, condition: Float[Tensor, "batch d_model"]) -> Tokens:
        """Map (B, T, d_m) to (B, T, d_m)."""
        shift, scale, gate, ff_shift, ff_scale, ff_gate = self.modulation(condition)
        x = x + gate * self.self_attn(modulate(x, self.self_attn_norm, shift, scale))
        return x + ff_gate * self.feed_forward(modulate(x, self.feed_forward_norm, ff_shift, ff_scale))


class FinalLayer(nn.Module):
    """Modulated norm and a projection of each token to its patch; the projection starts at zero."""

    initial_values = Modulation.initial_values

    def __init__(self, config: DiffusionTransformerConfig) -> None:
        super().__init__()
        self.norm = plain_norm(config.d_model)
        self.modulation = Modulation(config.d_model, 2)
        self.proj = nn.Linear(config.d_model, config.patch_size**2 * config.out_channels)

    def forward(self, x: Tokens, condition: Float[Tensor, "batch d_model"]) -> Float[Tensor, "batch seq patch"]:
        """Map (B, T, d_m) to (B, T, p p C)."""
        shift, scale = self.modulation(condition)
        return self.proj(modulate(x, self.norm, shift, scale))


class DiffusionTransformer(nn.Module):
    """Noise and variance (B, 2C, H, W) of latents (B, C, H, W), given a time step and a label for each.

    The patch embedding is the convolution of the released code, kernel and stride p, written as a linear layer
    on flattened patches: the same weights and products, and a form that every counter can read on meta.
    """

    def __init__(self, config: DiffusionTransformerConfig) -> None:
        super().__init__()
        self.config = config
        d_model, patch = config.d_model, config.patch_size**2
        self.patch_embedding = nn.Linear(patch * config.latent_channels, d_model)
        self.position_table = nn.Parameter(torch.zeros(1, config.num_tokens, d_model), requires_grad=False)
        self.timestep_embedding = TimestepEmbedding(config.frequency_width, d_model)
        self.label_embedding = nn.Embedding(config.num_labels, d_model)
        self.blocks = nn.ModuleList(DiTBlock(config, attention) for attention in config.layers)
        self.final_layer = FinalLayer(config)

    def initial_values(self) -> dict[str, Tensor]:
        """Return the frozen table of sines and cosines."""
        side = self.config.latent_size // self.config.patch_size
        return {"position_table": positions_in_2d(side, self.config.d_model)[None]}

    def forward(
        self,
        latents: Float[Tensor, "batch channels height width"],
        timesteps: Int[Tensor, "batch"],
        labels: Int[Tensor, "batch"],
    ) -> Float[Tensor, "batch out_channels height width"]:
        """Map (B, C, H, W) to (B, 2C, H, W); the last label means none."""
        side, p, c = self.config.latent_size // self.config.patch_size, self.config.patch_size, self.config.out_channels
        patches = latents.unflatten(3, (side, p)).unflatten(2, (side, p)).permute(0, 2, 4, 1, 3, 5)
        x = self.patch_embedding(patches.flatten(3).flatten(1, 2)) + self.position_table
        condition = self.timestep_embedding(timesteps) + self.label_embedding(labels)
        for block in self.blocks:
            x = block(x, condition)
        out = self.final_layer(x, condition).unflatten(2, (p, p, c)).unflatten(1, (side, side))
        return out.permute(0, 5, 1, 3, 2, 4).flatten(4).flatten(2, 3)


def positions_in_2d(side: int, d_model: int) -> Float[Tensor, "tokens d_model"]:
    """Return sines and cosines of a patch's column in the first half of the width, of its row in the second."""
    # each quarter: all sines, then all cosines, of one coordinate
    one = sinusoidal_positions(side, d_model // 2).unflatten(1, (-1, 2)).transpose(1, 2).flatten(1)
    columns = one[None].expand(side, -1, -1)
    rows = one[:, None].expand(-1, side, -1)
    return torch.cat((columns, rows), dim=-1).flatten(0, 1)
