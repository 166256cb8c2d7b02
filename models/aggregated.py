"""Aggregated attention (TransNeXt, arXiv 2311.17132): neighbours and pooled keys under one softmax, by cosine.

The window is unfolded, and every product is a ``torch.matmul`` of two operands that both carry the whole batch: the
formulation that every MAC counter reads in full, on meta too.
"""

from math import expm1, log, log2
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headcount.models.activations import relu
from headcount.models.attention import split_heads
from headcount.models.configs.aggregated import AggregatedAttentionConfig
from headcount.models.kernels.selection import Selectable
from headcount.models.shapes import Queries, QueryHeads
from headcount.models.transformer import FeedForward

WINDOW = 9
PATCH_OF_POSITIONS = 8
"""Relative positions are measured in eighths of the grid's side, and halved logarithmically."""


class Grid(NamedTuple):
    """Positions of the tokens of a grid, the same for every layer of its size.

    ``coordinates`` of every relative position; which of them ``pairs`` of a token and a pooled token have; where
    ``hidden``, a neighbour lies outside, None where there is no window; ``log_keys`` of the keys of each token.
    """

    coordinates: Float[Tensor, "positions 2"]
    pairs: Int[Tensor, "tgt keys"]
    hidden: Bool[Tensor, "tgt 9"] | None
    log_keys: Float[Tensor, "tgt"] | float


class Keys(NamedTuple):
    """Keys, of length 1, and values of tokens, by head."""

    key: Float[Tensor, "batch heads src head_dim"]
    value: Float[Tensor, "batch heads src head_dim"]


def reference(layer: "AggregatedAttention", x: Queries, grid: Grid) -> Queries:
    """Return the output projection of the concatenated heads."""
    return layer.out_proj(compute_heads(layer, x, grid).flatten(-2))


def compute_heads(layer: "AggregatedAttention", x: Queries, grid: Grid) -> QueryHeads:
    """Return the output of every head."""
    direction = F.normalize(split_heads(layer.q_proj(x), layer.config.head_dim), dim=-1).transpose(1, 2)
    query = (direction + layer.query_embedding.unsqueeze(1)) * layer.scale(grid).unsqueeze(-1)
    (keys, pooled), bias = layer.keys_and_values(x), layer.position_bias(grid)
    if pooled is None:
        weights = torch.softmax(torch.matmul(query, keys.key.transpose(-2, -1)) + bias, dim=-1)
        return torch.matmul(weights, keys.value).transpose(1, 2)
    # the windows of keys and of values at once
    around_key, around_value = layer.neighbours(torch.cat((keys.key, keys.value), dim=1)).chunk(2, dim=1)
    near = torch.matmul(query.unsqueeze(-2), around_key).squeeze(-2) + layer.window_bias.unsqueeze(1)
    far = torch.matmul(query, pooled.key.transpose(-2, -1)) + bias
    near, far = joint_softmax(near, far, grid.hidden)
    learned = torch.matmul(direction, layer.window_tokens.expand(x.shape[0], -1, -1, -1))
    near = near + learned + layer.window_weight.unsqueeze(1)
    out = torch.matmul(near.unsqueeze(-2), around_value.transpose(-2, -1)).squeeze(-2)
    return (out + torch.matmul(far, pooled.value)).transpose(1, 2)


class AggregatedAttention(Selectable):
    """Self-attention of the T = side^2 tokens of a grid.

    With q^ and k^ of length 1 and q' = (q^ + e) softplus(tau) log(visible keys), a token scores q' k^ of each of the
    w = 9 tokens around it, with a learned bias b, and q' k^ of each pooled token, with a bias of their relative
    position; one softmax over both gives weights a, and H = sum_w (a_w + q^ U_w + c_w) v_w + sum_j a_j v_j. Pooled
    tokens are the means of blocks of GELU(x W), after LayerNorm, and have keys and values by the same matrices. With
    ``pool_ratio`` 1 a token scores all T instead, and H = sum_j a_j v_j.
    """

    def __init__(self, config: AggregatedAttentionConfig, query=nn.Linear, output=nn.Linear) -> None:
        super().__init__(config)
        d_model, heads, head_dim = config.d_model, config.num_heads, config.head_dim
        self.q_proj = query(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.out_proj = output(d_model, d_model)
        # a number for each head from a pair of coordinates
        self.position = FeedForward(2, config.position_width, relu, width=heads)
        self.query_embedding = nn.Parameter(torch.empty(heads, head_dim))
        self.temperature = nn.Parameter(torch.empty(heads))
        self.initial_std = {"query_embedding": 0.02}
        self.pool_proj = None
        if config.num_pooled:
            self.pool_proj = nn.Linear(d_model, d_model)
            self.pool_norm = nn.LayerNorm(d_model)
            self.window_bias = nn.Parameter(torch.empty(heads, WINDOW))
            self.window_tokens = nn.Parameter(torch.empty(heads, head_dim, WINDOW))
            self.window_weight = nn.Parameter(torch.empty(heads, WINDOW))
            self.initial_std |= {"window_bias": 0.0004, "window_tokens": 0.02, "window_weight": 0.0}

    def initial_values(self) -> dict[str, Tensor]:
        """Initialise softplus(tau) = 1 / 0.24."""
        return {"temperature": torch.full((self.config.num_heads,), log(expm1(1 / 0.24)))}

    def forward(self, query: Queries, grid: Grid | None = None) -> Queries:
        """Map tokens (B, T, d_m), row by row of the grid, to (B, T, d_m); ``grid`` (default: :func:`make_grid`).

        ValueError for another number of tokens than the grid's.
        """
        run = self.resolve_impl(query)
        if not torch.jit.is_tracing() and query.shape[1] != self.config.num_tokens:
            raise ValueError(f"query must hold the grid's {self.config.num_tokens} tokens, not {query.shape[1]}")
        return run(self, query, make_grid(self.config, query) if grid is None else grid)

    def keys_and_values(self, x: Queries) -> tuple[Keys, Keys | None]:
        """Return keys and values of the tokens, and by the same matrices of the pooled tokens; None without pooling."""
        head_dim, num_tokens = self.config.head_dim, self.config.num_tokens
        if self.pool_proj is not None:
            x = torch.cat((x, self.pool(x)), dim=1)
        key = F.normalize(split_heads(self.k_proj(x), head_dim), dim=-1).transpose(1, 2)
        value = split_heads(self.v_proj(x), head_dim).transpose(1, 2)
        if self.pool_proj is None:
            return Keys(key, value), None
        (key, pooled_key), (value, pooled_value) = (y.tensor_split((num_tokens,), dim=2) for y in (key, value))
        return Keys(key, value), Keys(pooled_key, pooled_value)

    def pool(self, x: Queries) -> Float[Tensor, "batch pooled d_model"]:
        """Return the mean of each block of ``pool_ratio`` x ``pool_ratio`` tokens."""
        side, ratio = self.config.side, self.config.pool_ratio
        grid = F.gelu(self.pool_proj(x)).transpose(1, 2).unflatten(2, (side, side))
        return self.pool_norm(F.adaptive_avg_pool2d(grid, side // ratio).flatten(2).transpose(1, 2).contiguous())

    def neighbours(self, x: Float[Tensor, "batch heads tgt head_dim"]) -> Float[Tensor, "batch heads tgt head_dim 9"]:
        """Return the window around every token, row by row; zeros outside the grid."""
        side = self.config.side
        grid = x.transpose(2, 3).flatten(1, 2).unflatten(2, (side, side))
        return F.unfold(grid, 3, padding=1).unflatten(1, (x.shape[1], x.shape[3], WINDOW)).permute(0, 1, 4, 2, 3)

    def scale(self, grid: Grid) -> Float[Tensor, "heads #tgt"]:
        """Return softplus(tau) log(number of keys that a token sees)."""
        return F.softplus(self.temperature).unsqueeze(1) * grid.log_keys

    def position_bias(self, grid: Grid) -> Float[Tensor, "heads tgt keys"]:
        """Return the bias of every token and pooled token, of every pair of tokens where nothing is pooled."""
        return self.position(grid.coordinates)[grid.pairs].permute(2, 0, 1)


def make_grid(config: AggregatedAttentionConfig, like: Tensor) -> Grid:
    """Return the grid of a layer, on the device and of the dtype of ``like``."""
    side = config.side
    positions, index = coordinates(config, like), pairs(side, config.pool_ratio, like.device)
    if not config.num_pooled:
        return Grid(positions, index, None, log(config.num_tokens))
    visible = F.unfold(like.new_ones(1, side, side), 3, padding=1).t()
    return Grid(positions, index, visible == 0, torch.log(visible.sum(dim=-1) + config.num_pooled))


def coordinates(config: AggregatedAttentionConfig, like: Tensor) -> Float[Tensor, "positions 2"]:
    """Return sign(d) log2(|d| + 1) / log2 8 of row and column distances d, in eighths of the pre-training grid."""
    side, ratio = config.side, config.pool_ratio
    steps = torch.arange(2 * side - ratio, device=like.device, dtype=torch.float32)
    # from a token to the centre of a block
    distance = steps - (side - ratio) - (ratio - 1) / 2
    distance = distance * (PATCH_OF_POSITIONS / ((config.pretrained_side or side) - 1))
    one = torch.sign(distance) * torch.log2(distance.abs() + 1) / log2(PATCH_OF_POSITIONS)
    both = torch.stack((one[:, None].expand(-1, one.shape[0]), one[None].expand(one.shape[0], -1)), dim=-1)
    return both.flatten(0, 1).to(like.dtype)


def pairs(side: int, ratio: int, device: torch.device) -> Int[Tensor, "tgt keys"]:
    """Return the index of the relative position, of (2 side - ratio)^2, of every token and pooled token."""
    tokens, blocks = torch.arange(side, device=device), torch.arange(side // ratio, device=device)
    one = tokens[:, None] - ratio * blocks + (side - ratio)
    both = one[:, None, :, None] * (2 * side - ratio) + one[None, :, None, :]
    return both.flatten(2).flatten(0, 1)


def joint_softmax(
    near: Float[Tensor, "*rows 9"], far: Float[Tensor, "*rows pooled"], hidden: Bool[Tensor, "*#rows 9"]
) -> tuple[Float[Tensor, "*rows 9"], Float[Tensor, "*rows pooled"]]:
    """Softmax over window and pooled scores together, without the neighbours outside the grid."""
    near = near.masked_fill(hidden, torch.finfo(near.dtype).min)
    return torch.softmax(torch.cat((near, far), dim=-1), dim=-1).tensor_split((WINDOW,), dim=-1)
