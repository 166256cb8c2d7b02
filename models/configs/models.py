"""One frozen dataclass per model, with its validation. Importable without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from headcount.models.configs.base import (
    AttentionConfig,
    ConfigError,
    Input,
    ModelConfig,
    at_least,
    listed,
    probability,
    same_width,
    takes_rotary,
)
from headcount.models.configs.mixture import TakesMixture


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig(TakesMixture, ModelConfig):
    """Post-norm encoder-decoder Transformer with ReLU, sinusoidal positions and one shared embedding."""

    variant: ClassVar[str] = "encoder_decoder"
    module: ClassVar[str | None] = "EncoderDecoder"
    fields_by_letter: ClassVar[Mapping[str, str]] = {
        "d_m": "d_model",
        "F": "d_ff",
        "V": "vocab_size",
        "N_enc": "num_encoder_layers",
        "N_dec": "num_decoder_layers",
        **TakesMixture.mixture_letters,
    }
    lengths: ClassVar[Mapping[str, int]] = {"batch_size": 1, "src_len": 10, "tgt_len": 10}

    attention: AttentionConfig
    d_model: int
    d_ff: int
    num_encoder_layers: int
    num_decoder_layers: int
    vocab_size: int
    dropout: float = 0.0
    ffn_dropout: float = 0.0

    def __post_init__(self):
        at_least(1, d_model=self.d_model, d_ff=self.d_ff, vocab_size=self.vocab_size)
        listed(num_encoder_layers=self.num_encoder_layers, num_decoder_layers=self.num_decoder_layers)
        probability(dropout=self.dropout, ffn_dropout=self.ffn_dropout)
        same_width(self.d_model, self.attention)
        self.check_mixture()

    @property
    def decoder_attention(self) -> AttentionConfig:
        """The attention of decoder layers."""
        return self.attention.in_decoder

    def length_letters(self, lengths: Mapping[str, int]) -> dict[str, int]:
        """Input lengths in the field's letters: S source and T target tokens."""
        return {"B": lengths["batch_size"], "S": lengths["src_len"], "T": lengths["tgt_len"]}

    def inputs(self, lengths: Mapping[str, int]) -> dict[str, Input]:
        """Source tokens (B, S) and target tokens (B, T)."""
        return {
            "src_tokens": Input((lengths["batch_size"], lengths["src_len"]), self.vocab_size),
            "tgt_tokens": Input((lengths["batch_size"], lengths["tgt_len"]), self.vocab_size),
        }


@dataclass(frozen=True, kw_only=True)
class MaskedLanguageModelConfig(TakesMixture, ModelConfig):
    """Post-norm RoBERTa-style encoder: GELU, learned positions, embedding norm, tied output with a bias."""

    variant: ClassVar[str] = "masked_lm"
    module: ClassVar[str | None] = "MaskedLanguageModel"
    fields_by_letter: ClassVar[Mapping[str, str]] = {
        "d_m": "d_model",
        "F": "d_ff",
        "V": "vocab_size",
        "N": "num_layers",
        "P": "max_positions",
        **TakesMixture.mixture_letters,
    }
    lengths: ClassVar[Mapping[str, int]] = {"batch_size": 1, "seq_len": 128}

    attention: AttentionConfig
    d_model: int
    d_ff: int
    num_layers: int
    vocab_size: int
    max_positions: int
    dropout: float = 0.0
    ffn_dropout: float = 0.0

    def __post_init__(self):
        at_least(1, d_model=self.d_model, d_ff=self.d_ff, vocab_size=self.vocab_size)
        listed(num_layers=self.num_layers)
        at_least(1, max_positions=self.max_positions)
        probability(dropout=self.dropout, ffn_dropout=self.ffn_dropout)
        same_width(self.d_model, self.attention)
        self.check_mixture()

    def length_letters(self, lengths: Mapping[str, int]) -> dict[str, int]:
        """Input lengths in the field's letters: T tokens; two positions are reserved, as in RoBERTa."""
        if lengths["seq_len"] + 2 > self.max_positions:
            raise ConfigError(
                f"seq_len must be at most max_positions - 2 = {self.max_positions - 2}, not {lengths['seq_len']}; "
                "set max_positions for longer inputs"
            )
        return {"B": lengths["batch_size"], "T": lengths["seq_len"]}

    def inputs(self, lengths: Mapping[str, int]) -> dict[str, Input]:
        """Tokens (B, T)."""
        self.length_letters(lengths)
        return {"tokens": Input((lengths["batch_size"], lengths["seq_len"]), self.vocab_size)}


class Layered(ModelConfig):
    """A model whose attention fields may differ from layer to layer: ``layers`` has one attention for each.

    ``derived_fields`` are fields of an attention that nobody gives.
    """

    layers: tuple[AttentionConfig, ...]
    derived_fields: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def runs(cls, values: Mapping[str, Any]) -> tuple[str, tuple[int, ...]]:
        """What an attention's field may have one value for each of, and how many layers each of these has."""
        num_layers = values.get("num_layers", 1)
        listed(num_layers=num_layers)
        return "layer", (1,) * num_layers

    @classmethod
    def derived(cls, values: Mapping[str, Any], i: int) -> dict[str, Any]:
        """The ``derived_fields`` of the attention of run ``i``, which follow from the model's own."""
        return {}

    @property
    def attention(self) -> AttentionConfig:
        """The first layer's attention; variant and width are the same in all."""
        return self.layers[0]


@dataclass(frozen=True, kw_only=True)
class LlamaConfig(TakesMixture, Layered):
    """Pre-norm causal language model: RMSNorm, rotary positions, SwiGLU, untied output, no biases but the layers'.

    ``context_len``: tokens of the default input; longer inputs are allowed.
    """

    variant: ClassVar[str] = "llama"
    gated: ClassVar[bool] = True
    module: ClassVar[str | None] = "Llama"
    fields_by_letter: ClassVar[Mapping[str, str]] = {
        "d_m": "d_model",
        "F": "d_ff",
        "V": "vocab_size",
        **TakesMixture.mixture_letters,
    }

    layers: tuple[AttentionConfig, ...]
    d_model: int
    d_ff: int
    num_layers: int
    vocab_size: int
    context_len: int = 2048
    rope_theta: float = 500000.0

    def __post_init__(self):
        at_least(1, d_model=self.d_model, d_ff=self.d_ff, num_layers=self.num_layers, vocab_size=self.vocab_size)
        at_least(1, context_len=self.context_len, rope_theta=self.rope_theta)
        same_width(self.d_model, *self.layers)
        self.check_mixture()
        for layer in self.layers:
            takes_rotary(layer)
            if layer.rotary_width % 2:
                raise ConfigError(f"{layer.rotary} must be even for rotary positions, not {layer.rotary_width}")

    @property
    def lengths(self) -> dict[str, int]:
        """One sequence of ``context_len`` tokens."""
        return {"batch_size": 1, "seq_len": self.context_len}

    def length_letters(self, lengths: Mapping[str, int]) -> dict[str, int]:
        """Input lengths in the field's letters: T tokens."""
        return {"B": lengths["batch_size"], "T": lengths["seq_len"]}

    def inputs(self, lengths: Mapping[str, int]) -> dict[str, Input]:
        """Tokens (B, T)."""
        return {"tokens": Input((lengths["batch_size"], lengths["seq_len"]), self.vocab_size)}


@dataclass(frozen=True, kw_only=True)
class DiffusionTransformerConfig(TakesMixture, Layered):
    """DiT (arXiv 2212.09748): adaLN-Zero, on square latents of ``latent_channels``, class labels, learned sigma.

    A 256 x 256 image is a 32 x 32 latent, 512 x 512 is 64 x 64. One label is added for "no label".
    """

    variant: ClassVar[str] = "dit"
    module: ClassVar[str | None] = "DiffusionTransformer"
    fields_by_letter: ClassVar[Mapping[str, str]] = {
        "d_m": "d_model",
        "F": "d_ff",
        "T": "num_tokens",
        "p": "patch_size",
        "C_in": "latent_channels",
        "C_out": "out_channels",
        "d_t": "frequency_width",
        "N_y": "num_labels",
        **TakesMixture.mixture_letters,
    }
    lengths: ClassVar[Mapping[str, int]] = {"batch_size": 1}

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
        at_least(1, d_model=self.d_model, num_layers=self.num_layers, patch_size=self.patch_size)
        at_least(1, latent_size=self.latent_size, latent_channels=self.latent_channels, mlp_ratio=self.mlp_ratio)
        at_least(1, num_classes=self.num_classes, frequency_width=self.frequency_width)
        same_width(self.d_model, *self.layers)
        self.check_mixture()
        if self.latent_size % self.patch_size:
            raise ConfigError(
                f"patch_size must divide latent_size, and {self.patch_size} does not divide {self.latent_size}"
            )
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

    def length_letters(self, lengths: Mapping[str, int]) -> dict[str, int]:
        """Input lengths in the field's letters; the number of tokens is the model's own."""
        return {"B": lengths["batch_size"]}

    def inputs(self, lengths: Mapping[str, int]) -> dict[str, Input]:
        """Latents (B, C, H, W), time steps (B,) below 1000, labels (B,)."""
        batch_size = lengths["batch_size"]
        return {
            "latents": Input((batch_size, self.latent_channels, self.latent_size, self.latent_size)),
            "timesteps": Input((batch_size,), 1000),
            "labels": Input((batch_size,), self.num_labels),
        }
