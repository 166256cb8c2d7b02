"""Diffusion Transformer: sizes and their validation. Importable without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from headcount.models.configs.base import AttentionConfig, ConfigError, Input, Layered, fields_of
from headcount.models.configs.moe_ffn import TakesMixture


@dataclass(frozen=True, kw_only=True)
class DiffusionTransformerConfig(TakesMixture, Layered):
    """DiT (arXiv 2212.09748): adaLN-Zero, on square latents of ``latent_channels``, class labels, learned sigma.

    A 256 x 256 image is a 32 x 32 latent, 512 x 512 is 64 x 64. One label is added for "no label".
    """

    module: ClassVar[str | None] = "DiffusionTransformer"
    fields_by_letter: ClassVar[Mapping[str, str]] = fields_of(
        "d_m", "F", "T", "p", "C_in", "C_out", "d_t", "N_y", "E_ff", "K_ff"
    )
    lengths: ClassVar[Mapping[str, int]] = {"batch_size": 1}
    divides: ClassVar[Mapping[str, str]] = {"patch_size": "latent_size"}

    layers: tuple[AttentionConfig, ...]
    d_model: int
    num_layers: int
    patch_size: int
    latent_size: int = 32
    latent_channels: int = 4
    mlp_ratio: int = 4
    num_classes: int = 1000
    frequency_width: int = 256

    def __post_init__(self):
        super().__post_init__()
        if self.d_model % 4:
            raise ConfigError(f"d_model must be a multiple of 4 for sin-cos positions in 2-D, not {self.d_model}")
        if self.frequency_width % 2:
            raise ConfigError(f"frequency_width must be even, half sines and half cosines, not {self.frequency_width}")

    @property
    def num_tokens(self) -> int:
        """T: patches of the latent."""
        return (self.latent_size // self.patch_size) ** 2

    @property
    def d_ff(self) -> int:
        """Inner width of the feed-forward block."""
        return self.mlp_ratio * self.d_model

    @property
    def out_channels(self) -> int:
        """Noise and its variance for each channel of the latent."""
        return 2 * self.latent_channels

    @property
    def num_labels(self) -> int:
        """Classes, and one label for none."""
        return self.num_classes + 1

    def inputs(self, lengths: Mapping[str, int]) -> dict[str, Input]:
        """Return latents (B, C, H, W), time steps (B,) below 1000, labels (B,)."""
        batch_size = lengths["batch_size"]
        return {
            "latents": Input((batch_size, self.latent_channels, self.latent_size, self.latent_size)),
            "timesteps": Input((batch_size,), 1000),
            "labels": Input((batch_size,), self.num_labels),
        }
