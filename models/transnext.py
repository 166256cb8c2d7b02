"""TransNeXt (arXiv 2311.17132), an image classifier in stages, around aggregated attention with or without routing."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from headcount.models.activations import gelu
from headcount.models.aggregated import Grid, make_grid
from headcount.models.build import make_module
from headcount.models.configs.base import AttentionConfig
from headcount.models.configs.moe_ffn import MixtureFeedForwardConfig
from headcount.models.configs.transnext import CHANNELS, STRIDES, TransNeXtConfig
from headcount.models.moe_ffn import MixtureFeedForward


class PatchEmbedding(nn.Module):
    """Norm(convolution of overlapping patches), stride 4 and side 7 or stride 2 and side 3, as a linear layer."""

    def __init__(self, channels: int, d_model: int, stride: int) -> None:
        super().__init__()
        self.stride, self.kernel = stride, 2 * stride - 1
        self.proj = nn.Linear(channels * self.kernel**2, d_model)
        self.norm = nn.LayerNorm(d_model)

    def forward(self, x: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch tokens d_model"]:
        """Map (B, C, R, R) to (B, T, d_m), row by row."""
        patches = F.unfold(x, self.kernel, padding=self.stride - 1, stride=self.stride)
        return self.norm(self.proj(patches.transpose(1, 2).contiguous()))


class DepthwiseConvolution(nn.Module):
    """A kernel of 3 x 3 for each channel of a grid, and a bias, as products of unfolded windows."""

    def __init__(self, channels: int, side: int) -> None:
        super().__init__()
        self.side = side
        self.weight = nn.Parameter(torch.empty(channels, 9))
        self.bias = nn.Parameter(torch.empty(channels))
        self.initial_std = {"weight": (2 / 9) ** 0.5}

    def forward(self, x: Float[Tensor, "batch tokens channels"]) -> Float[Tensor, "batch tokens channels"]:
        """Map (B, T, F) to (B, T, F)."""
        grid = x.transpose(1, 2).unflatten(2, (self.side, self.side))
        # (B, F, T, 9): both operands of the product carry the whole batch
        windows = F.unfold(grid, 3, padding=1).unflatten(1, (-1, 9)).transpose(2, 3)
        kernels = self.weight.unsqueeze(-1).expand(x.shape[0], -1, -1, -1)
        return torch.matmul(windows, kernels).squeeze(-1).transpose(1, 2) + self.bias


class ConvolutionalGatedUnit(nn.Module):
    """(GELU(conv(a)) * b) W_2 + b_2, with a, b the halves of x W_1 + b_1."""

    def __init__(self, d_model: int, width: int, side: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(d_model, 2 * width)
        self.conv = DepthwiseConvolution(width, side)
        self.fc2 = nn.Linear(width, d_model)

    def forward(self, x: Float[Tensor, "batch tokens d_model"]) -> Float[Tensor, "batch tokens d_model"]:
        """Map (B, T, d_m) to (B, T, d_m)."""
        a, b = self.fc1(x).chunk(2, dim=-1)
        return self.fc2((F.gelu(self.conv(a)) * b).contiguous())


class TransNeXtBlock(nn.Module):
    """x = x + Attention(Norm(x)); x = x + FeedForward(Norm(x)).

    The feed-forward block is a convolutional gated unit, or the ``mixture`` of plain experts in its place.
    """

    def __init__(self, attention: AttentionConfig, width: int, mixture: MixtureFeedForwardConfig | None) -> None:
        super().__init__()
        self.self_attn_norm = nn.LayerNorm(attention.d_model, eps=1e-6)
        self.self_attn = make_module(attention)
        self.feed_forward_norm = nn.LayerNorm(attention.d_model, eps=1e-6)
        if mixture is None:
            self.feed_forward = ConvolutionalGatedUnit(attention.d_model, width, attention.side)
        else:
            self.feed_forward = MixtureFeedForward(mixture, gelu)

    def forward(self, x: Float[Tensor, "batch tokens d_model"], grid: Grid) -> Float[Tensor, "batch tokens d_model"]:
        """Map (B, T, d_m) to (B, T, d_m)."""
        x = x + self.self_attn(self.self_attn_norm(x), grid)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Stage(nn.Module):
    """Patch embedding, blocks and a norm of stage ``index``; returns tokens on their grid."""

    def __init__(self, config: TransNeXtConfig, index: int) -> None:
        super().__init__()
        self.attention = attention = config.stages[index]
        channels = config.widths[index - 1] if index else CHANNELS
        self.patch_embedding = PatchEmbedding(channels, attention.d_model, STRIDES[min(index, 1)])
        block = attention, config.inner_widths[index], config.mixtures[index]
        self.blocks = nn.ModuleList(TransNeXtBlock(*block) for _ in range(config.depths[index]))
        self.norm = nn.LayerNorm(attention.d_model, eps=1e-6)

    def forward(self, x: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch d_model side side"]:
        """Map (B, C, R, R) to (B, d_m, n, n)."""
        x = self.patch_embedding(x)
        grid = make_grid(self.attention, x)
        for block in self.blocks:
            x = block(x, grid)
        side = self.attention.side
        return self.norm(x).transpose(1, 2).unflatten(2, (side, side))


class TransNeXt(nn.Module):
    """Logits (B, classes) of images (B, 3, R, R): stages of ever fewer and wider tokens, the mean of the last."""

    def __init__(self, config: TransNeXtConfig) -> None:
        super().__init__()
        self.config = config
        self.stages = nn.ModuleList(Stage(config, index) for index in range(len(config.depths)))
        self.head = nn.Linear(config.widths[-1], config.num_classes)

    def forward(self, images: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch classes"]:
        """Map (B, 3, R, R) to (B, classes). ValueError for images of another size than ``image_size``."""
        shape = (CHANNELS, self.config.image_size, self.config.image_size)
        # a tracer's sizes are no numbers to compare
        if not torch.jit.is_tracing() and images.shape[1:] != shape:
            found = ", ".join(map(str, images.shape))
            raise ValueError(f"images must be (B, {', '.join(map(str, shape))}) as in image_size, not ({found})")
        x = images
        for stage in self.stages:
            x = stage(x)
        return self.head(x.flatten(2).mean(dim=-1))
