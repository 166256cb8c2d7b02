"""Encoder-decoder with light or dynamic convolutions in place of self-attention (arXiv 1901.10430).

A convolution is the product of each token's window with its kernels, both operands carrying the whole batch: the
formulation that every MAC counter reads in full, on meta too. As the product of a band matrix it has T taps.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from headcount.models.activations import relu
from headcount.models.attention import drop, zero_padding
from headcount.models.cache import WindowCache
from headcount.models.configs.base import ModelConfig
from headcount.models.configs.convolution import ConvolutionConfig
from headcount.models.encoder_decoder import EncoderDecoder
from headcount.models.shapes import PaddingMask, Tokens
from headcount.models.transformer import Decoder, DecoderLayer, Encoder, EncoderLayer


class ConvolutionBlock(nn.Module):
    """y = Conv(v) W_out + b_out, v = a * sigmoid(b) with a, b the halves of x W_in + b_in.

    Conv(v)[t, c] = sum_k W[t, group of c, k] v[t + k - P, c], zeros outside the sequence; h_w groups of neighbouring
    channels. W is a softmax over the w taps, also where some lie outside: of a parameter, or, ``dynamic``, of v[t] W_k.
    P = w - 1 where ``causal``, else w // 2.
    """

    def __init__(self, config: ConvolutionConfig, kernel_size: int, causal: bool) -> None:
        super().__init__()
        d_model, self.groups, self.kernel_size = config.d_model, config.num_weight_heads, kernel_size
        self.before = kernel_size - 1 if causal else kernel_size // 2
        self.band, self.dropout = config.band, config.kernel_dropout
        self.in_proj = nn.Linear(d_model, 2 * d_model)
        self.kernel_proj = None
        if config.dynamic:
            self.kernel_proj = nn.Linear(d_model, self.groups * kernel_size, bias=False)
        else:
            self.weight = nn.Parameter(torch.empty(self.groups, kernel_size))
            self.initial_std = {"weight": (2 / (self.groups + kernel_size)) ** 0.5}
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x: Tokens, padding_mask: PaddingMask = None, cache: WindowCache | None = None) -> Tokens:
        """Map (B, T, d_m) to (B, T, d_m); ``padding_mask`` is True at padding, which counts as outside the sequence.

        With ``cache``, which only a causal one takes, the tokens come after those in it, and are appended.
        """
        v = zero_padding(F.glu(self.in_proj(x), dim=-1), padding_mask)
        kernels = drop(self.kernels(v), self.dropout, self.training)
        if cache is not None:
            z = products_of_windows(cache.append(v), kernels)
        elif self.band:
            z = product_of_bands(v, kernels, self.before)
        else:
            z = products_of_windows(F.pad(v, (0, 0, self.before, self.kernel_size - 1 - self.before)), kernels)
        return self.out_proj(z)

    def kernels(self, v: Tokens) -> Float[Tensor, "batch seq groups taps"]:
        """Return W of each token: (B, T, h_w, w)."""
        if self.kernel_proj is not None:
            return torch.softmax(self.kernel_proj(v).unflatten(-1, (self.groups, -1)), dim=-1)
        return torch.softmax(self.weight, dim=-1).expand(*v.shape[:2], -1, -1)


def products_of_windows(
    v: Float[Tensor, "batch seen d_model"], kernels: Float[Tensor, "batch seq groups taps"]
) -> Tokens:
    """Multiply the window of each token by its kernels; the first window is the first w tokens of ``v``."""
    groups, taps = kernels.shape[2:]
    windows = v.unfold(1, taps, 1).unflatten(2, (groups, -1))
    return torch.matmul(windows, kernels[..., None])[..., 0].flatten(2)


def product_of_bands(v: Tokens, kernels: Float[Tensor, "batch seq groups taps"], before: int) -> Tokens:
    """Return the same as one product with a (T, T) band matrix per group, its kernels around the diagonal."""
    seq_len, taps = kernels.shape[1], kernels.shape[3]
    rows = F.pad(kernels.transpose(1, 2), (0, seq_len))
    # each row one column further to the right than the one before
    skewed = rows.flatten(2)[..., : seq_len * (seq_len + taps - 1)].unflatten(2, (seq_len, -1))
    matrix = skewed[..., before : before + seq_len]
    by_group = v.unflatten(2, (kernels.shape[2], -1)).transpose(1, 2)
    return torch.matmul(matrix, by_group).transpose(1, 2).flatten(2).contiguous()


class ConvolutionalEncoderLayer(EncoderLayer):
    """x = Norm(x + Conv(x)); x = Norm(x + FeedForward(x)), with dropout of the input of the convolution."""

    def add_mixer(self, config: ConvolutionConfig, kernel_size: int) -> None:
        """Add the convolution and its norm."""
        self.conv = ConvolutionBlock(config, kernel_size, self.causal)
        self.conv_norm = nn.LayerNorm(config.d_model)
        self.input_dropout = config.input_dropout

    def mix(self, x: Tensor, padding_mask: Tensor | None = None, cache: WindowCache | None = None) -> Tensor:
        """Return the convolution of (B, T, d_m), with residual and norm."""
        mixed = self.conv(drop(x, self.input_dropout, self.training), padding_mask, cache)
        return self.residual(x, mixed, self.conv_norm)


class ConvolutionalDecoderLayer(ConvolutionalEncoderLayer, DecoderLayer):
    """As ConvolutionalEncoderLayer, causal, with attention to the encoder's output after the convolution."""

    def make_own_cache(self, memory: Tensor, max_len: int) -> WindowCache:
        """Return the cache of a window; its size does not depend on ``max_len``."""
        return WindowCache(memory.shape[0], self.conv.kernel_size, memory.shape[-1], memory)

    def memory_arguments(self, memory: Tensor, padding_mask: Tensor | None, **options) -> tuple[Mapping, Mapping]:
        """Return no arguments of the convolution, and those of cross-attention."""
        return {}, self.cross_attn.memory_arguments(memory, padding_mask, **options)


class ConvolutionalEncoderDecoder(EncoderDecoder):
    """Encoder-decoder with a convolution in place of self-attention; each layer has its kernel size."""

    def stacks(self, config: ModelConfig) -> tuple[Encoder, Decoder]:
        """Return the layers of both sides."""
        encoder = Encoder(ConvolutionalEncoderLayer(config, relu, size) for size in config.encoder_kernel_sizes)
        return encoder, Decoder(ConvolutionalDecoderLayer(config, relu, size) for size in config.decoder_kernel_sizes)
