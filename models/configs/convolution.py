"""Encoder-decoders with convolutions in place of self-attention: sizes and validation. Importable without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from headcount.models.configs.base import (
    AttentionConfig,
    ConfigError,
    ModelConfig,
    at_least,
    one_of,
    probability,
    same_width,
)
from headcount.models.configs.mixture import TakesMixture
from headcount.models.configs.models import EncoderDecoderConfig


@dataclass(frozen=True, kw_only=True)
class ConvolutionConfig(TakesMixture, ModelConfig):
    """Encoder-decoder with a light or dynamic convolution in place of self-attention (arXiv 1901.10430).

    ``convolution``: ``light`` or ``dynamic``; cross-attention is ``attention``. One kernel size per layer.
    ``spelling``: how a convolution of whole sequences is written, as products of its ``windows``, w taps for a
    token, or of a ``band`` matrix for each group, which is T taps for a token, most of them zero.
    """

    variant: ClassVar[str] = "convolution"
    module: ClassVar[str | None] = "ConvolutionalEncoderDecoder"
    fields_by_letter: ClassVar[Mapping[str, str]] = {
        "d_m": "d_model",
        "F": "d_ff",
        "V": "vocab_size",
        "h_w": "num_weight_heads",
        "encoder_kernels": "encoder_kernel_sizes",
        "decoder_kernels": "decoder_kernel_sizes",
        "dynamic": "dynamic",
        "band": "band",
        **TakesMixture.mixture_letters,
    }
    lengths: ClassVar[Mapping[str, int]] = {"batch_size": 1, "src_len": 10, "tgt_len": 10}

    attention: AttentionConfig
    convolution: str
    d_model: int
    d_ff: int
    num_weight_heads: int
    encoder_kernel_sizes: tuple[int, ...]
    decoder_kernel_sizes: tuple[int, ...]
    vocab_size: int
    spelling: str = "windows"
    dropout: float = 0.0
    input_dropout: float = 0.0
    kernel_dropout: float = 0.0
    ffn_dropout: float = 0.0

    def __post_init__(self):
        at_least(1, d_model=self.d_model, d_ff=self.d_ff, vocab_size=self.vocab_size)
        at_least(1, num_weight_heads=self.num_weight_heads)
        for name in ("encoder_kernel_sizes", "decoder_kernel_sizes"):
            at_least(1, **{f"the number of {name}": len(getattr(self, name))})
            at_least(1, **{name: min(getattr(self, name))})
        if self.d_model % self.num_weight_heads:
            raise ConfigError(
                f"num_weight_heads must divide d_model, and {self.num_weight_heads} does not divide {self.d_model}"
            )
        same_width(self.d_model, self.attention)
        one_of(("light", "dynamic"), convolution=self.convolution)
        one_of(("windows", "band"), spelling=self.spelling)
        probability(dropout=self.dropout, input_dropout=self.input_dropout)
        probability(kernel_dropout=self.kernel_dropout, ffn_dropout=self.ffn_dropout)
        self.check_mixture()

    @property
    def dynamic(self) -> bool:
        """Whether kernels are predicted from the tokens."""
        return self.convolution == "dynamic"

    @property
    def band(self) -> bool:
        """Whether convolutions are products of a band matrix."""
        return self.spelling == "band"

    length_letters = EncoderDecoderConfig.length_letters
    inputs = EncoderDecoderConfig.inputs
    decoder_attention = EncoderDecoderConfig.decoder_attention
