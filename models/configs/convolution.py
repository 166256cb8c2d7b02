"""Encoder-decoders with convolutions in place of self-attention: sizes and validation. Importable without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from headcount.models.configs.base import AttentionConfig, fields_of
from headcount.models.configs.encoder_decoder import Translation


class Convolution(StrEnum):
    """Kernels of a layer: the same for all tokens, or predicted from each token."""

    LIGHT = "light"
    DYNAMIC = "dynamic"


class Spelling(StrEnum):
    """Formulation of a convolution of whole sequences: products of windows, or a band matrix for each group."""

    WINDOWS = "windows"
    BAND = "band"


@dataclass(frozen=True, kw_only=True)
class ConvolutionConfig(Translation):
    """Encoder-decoder with a light or dynamic convolution in place of self-attention (arXiv 1901.10430).

    ``convolution``: ``light`` or ``dynamic``; cross-attention is ``attention``. One kernel size per layer.
    ``spelling``: how a convolution of whole sequences is written, as products of its ``windows``, w taps for a
    token, or of a ``band`` matrix for each group, which is T taps for a token, most of them zero.
    """

    module: ClassVar[str | None] = "ConvolutionalEncoderDecoder"
    fields_by_letter: ClassVar[Mapping[str, str]] = fields_of(
        "d_m", "F", "V", "h_w", "encoder_kernels", "decoder_kernels", "dynamic", "band", "E_ff", "K_ff"
    )
    divides: ClassVar[Mapping[str, str]] = {"num_weight_heads": "d_model"}

    attention: AttentionConfig
    convolution: Convolution | str
    d_model: int
    d_ff: int
    num_weight_heads: int
    encoder_kernel_sizes: tuple[int, ...]
    decoder_kernel_sizes: tuple[int, ...]
    vocab_size: int
    spelling: Spelling | str = Spelling.WINDOWS
    dropout: float = 0.0
    input_dropout: float = 0.0
    kernel_dropout: float = 0.0
    ffn_dropout: float = 0.0

    @property
    def dynamic(self) -> bool:
        """Whether kernels are predicted from the tokens."""
        return self.convolution is Convolution.DYNAMIC

    @property
    def band(self) -> bool:
        """Whether convolutions are products of a band matrix."""
        return self.spelling is Spelling.BAND
