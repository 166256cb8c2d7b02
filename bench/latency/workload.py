"""Make random inputs for a timed layer, and steer its router to a stated distribution over experts."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from headcount.bench.latency.routings import expert_shares, inclusion

MARGIN = 4.0
"""Difference between the logits of selected experts and of the others."""


def selection(routing: str, tokens: int, num_experts: int, top_k: int, seed: int) -> Tensor:
    """Return (N, K) different experts for each token. ``balanced`` takes turns, so that shares are equal to a row;
    ``one-expert`` sends every token to expert 0 and its other slots in turn.

    The others are sampled systematically: the probabilities of ``inclusion`` lie end to end on [0, K), and a token
    takes the experts under u, u + 1, … u + K - 1. The u of all tokens are spread evenly over [0, 1), in random
    order, so that shares come out to within a row or two.
    """
    if routing == "balanced":
        return (torch.arange(tokens)[:, None] * top_k + torch.arange(top_k)) % num_experts
    if routing == "one-expert":
        others = 1 + (torch.arange(tokens)[:, None] * (top_k - 1) + torch.arange(top_k - 1)) % max(1, num_experts - 1)
        return torch.cat([torch.zeros(tokens, 1, dtype=torch.int64), others], dim=1)
    ends = torch.tensor(inclusion(expert_shares(routing, num_experts), top_k), dtype=torch.float64).cumsum(0)
    generator = torch.Generator().manual_seed(seed)
    starts = (torch.randperm(tokens, generator=generator).double() + 0.5) / tokens
    # rounding must not end the last interval before the last point
    ends[-1] = top_k
    return torch.searchsorted(ends, starts[:, None] + torch.arange(top_k), right=True)


def features(batch_size: int, seq_len: int, d_model: int, seed: int) -> Tensor:
    """Return N(0, 1) inputs, (B, T, d_m), the same on every device."""
    return torch.randn(batch_size, seq_len, d_model, generator=torch.Generator().manual_seed(seed))


def variations(x: Tensor, count: int) -> Iterator[Tensor]:
    """Yield ``count`` inputs from one draw, (B, T, d_m): tokens at other positions, with other signs."""
    tokens = x.flatten(0, 1)
    for i in range(count):
        yield (tokens.roll(i * max(1, len(tokens) // count), 0) * (-1) ** i).view_as(x)


def route(x: Tensor, selected: Tensor, num_experts: int) -> Tensor:
    """Return ``x`` with its first E features shifted so that :func:`steer`ed routers select ``selected``.

    ValueError where the model is narrower than E.
    """
    if num_experts > x.shape[-1]:
        raise ValueError(f"{num_experts} experts need as many features, but x has {x.shape[-1]}")
    chosen = x.new_zeros(selected.shape[0], num_experts).scatter_(1, selected.to(x.device), 1.0).view(*x.shape[:-1], -1)
    moved = x.clone()
    moved[..., :num_experts] = MARGIN * (2 * chosen - 1) + 0.5 * x[..., :num_experts].clamp(-3, 3)
    return moved


@torch.no_grad()
def steer(layer: nn.Module) -> None:
    """Set a linear router so that the logit of expert e is feature e; other layers are unchanged."""
    projection = _routing_projection(layer)
    if projection is not None:
        weight = projection.weight
        weight.zero_()
        weight[:, : weight.shape[0]] = torch.eye(weight.shape[0], dtype=weight.dtype, device=weight.device)


def steerable(layer: nn.Module) -> int:
    """Return the number of experts (MoA) or routed heads (MoH) of the linear router; 0 without one."""
    projection = _routing_projection(layer)
    return 0 if projection is None else projection.weight.shape[0]


def _routing_projection(layer: nn.Module) -> nn.Linear | None:
    return getattr(getattr(layer, "router", None), "routing_projection", None)
