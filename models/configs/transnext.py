"""TransNeXt, an image classifier of several stages, around aggregated attention. Importable without torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar

from headcount.models.configs.base import (
    MOST_LAYERS,
    AttentionConfig,
    ConfigError,
    Input,
    Layered,
    check_range,
    fields_of,
)
from headcount.models.configs.moe_ffn import MixtureFeedForwardConfig, TakesMixture

CHANNELS = 3
STRIDES = (4, 2)
"""Strides of the first stage and of every later stage."""


@dataclass(frozen=True, kw_only=True)
class TransNeXtConfig(TakesMixture, Layered):
    """TransNeXt (arXiv 2311.17132) on square images; attention fields may have a value for each stage.

    ``depths`` are the layers of each stage, ``mlp_ratio`` the widths of its feed-forward blocks as in the paper,
    of which two thirds are built. ``pretrained_size`` is the image size that positions are measured by, the model's
    own unless it was fine-tuned at another.
    With ``ffn_num_experts`` each block's convolutional gated unit is replaced by ``ffn_top_k`` of so many plain experts
    of its width, GELU between two biased linear layers: no convolution and no gate, every token for itself.
    """

    module: ClassVar[str | None] = "TransNeXt"
    equal_blocks: ClassVar[bool] = False
    fields_by_letter: ClassVar[Mapping[str, str]] = {"C_in": "channels"} | fields_of(
        "C", "depths", "tokens", "widths", "inner_widths", "E_ff", "K_ff"
    )
    lengths: ClassVar[Mapping[str, int]] = {"batch_size": 1}
    unit: ClassVar[str] = "stage"
    derived_fields: ClassVar[tuple[str, ...]] = ("side", "pretrained_side")
    channels: ClassVar[int] = CHANNELS

    layers: tuple[AttentionConfig, ...]
    depths: tuple[int, ...]
    mlp_ratio: tuple[int, ...]
    image_size: int = 224
    pretrained_size: int | None = None
    num_classes: int = 1000

    def __post_init__(self):
        super().__post_init__()
        if len(self.mlp_ratio) != len(self.depths):
            raise ConfigError(f"mlp_ratio takes one for each of {len(self.depths)} stages, not {len(self.mlp_ratio)}")
        if not hasattr(self.layers[0], "side"):
            raise ConfigError(
                f"attention must be aggregated or moh_aggregated in a transnext model, not {self.layers[0].variant!r}"
            )

    @classmethod
    def units(cls, values: Mapping[str, Any]) -> list[tuple[int, dict[str, int | None]]]:
        """Return the layers of each stage, and the sides of its grids. ConfigError for an image that the strides do not
        divide."""
        depths, size = values.get("depths"), values.get("image_size", cls.image_size)
        if not depths:
            raise ConfigError("depths must have the number of layers of at least one stage")
        check_range("depths", min(depths), 1)
        check_range("depths", sum(depths), 1, MOST_LAYERS)
        own, pretrained = _sides("image_size", size, depths), values.get("pretrained_size")
        before = [None] * len(depths) if pretrained is None else _sides("pretrained_size", pretrained, depths)
        sides = [dict(zip(cls.derived_fields, both, strict=True)) for both in zip(own, before, strict=True)]
        return list(zip(depths, sides, strict=True))

    @property
    def stages(self) -> tuple[AttentionConfig, ...]:
        """The attention of each stage."""
        return tuple(self.layers[last - 1] for last in accumulate(self.depths))

    @property
    def num_tokens(self) -> int:
        """T: tokens of the image before any stage makes fewer."""
        return self.tokens[0]

    @property
    def tokens(self) -> tuple[int, ...]:
        """Tokens of each stage."""
        return tuple(stage.num_tokens for stage in self.stages)

    @property
    def widths(self) -> tuple[int, ...]:
        """Model width of each stage."""
        return tuple(stage.d_model for stage in self.stages)

    @property
    def inner_widths(self) -> tuple[int, ...]:
        """Inner width of the feed-forward blocks of each stage."""
        return tuple(2 * ratio * width // 3 for ratio, width in zip(self.mlp_ratio, self.widths, strict=True))

    @property
    def mixture(self) -> MixtureFeedForwardConfig | None:
        """The feed-forward block of the first stage, where it is a mixture."""
        return self.mixtures[0]

    @property
    def mixtures(self) -> tuple[MixtureFeedForwardConfig | None, ...]:
        """The feed-forward block of each stage; None for a convolutional gated unit."""
        return tuple(map(self.mixture_of, self.widths, self.inner_widths))

    def inputs(self, lengths: Mapping[str, int]) -> dict[str, Input]:
        """Return images (B, 3, R, R)."""
        return {"images": Input((lengths["batch_size"], CHANNELS, self.image_size, self.image_size))}


def _sides(field: str, size: Any, depths: Sequence[int]) -> list[int]:
    """Return the side of the grid of each stage. ConfigError naming ``field``."""
    strides = [STRIDES[0] * STRIDES[1] ** i for i in range(len(depths))]
    if type(size) is not int:
        raise ConfigError(f"{field} must be a whole number, not {size!r}")
    if size < 2 * strides[-1] or size % strides[-1]:
        raise ConfigError(
            f"{field} must be a multiple of {strides[-1]}, the stride of {len(depths)} stages, from {2 * strides[-1]} "
            f"on, not {size}"
        )
    return [size // stride for stride in strides]
