"""Random inputs for a timed layer, and routers that send their tokens to experts in a stated distribution."""

import torch
from torch import Tensor, nn

ROUTINGS = ("balanced", "paper", "zipf", "one-expert")
MARGIN = 4.0
"""How far the logits of selected experts stand above the others."""


def expert_shares(routing: str, num_experts: int) -> list[float]:
    """The share of (token, slot) pairs that each expert gets.

    ``paper``: falls evenly so that the largest is 5.5 times the smallest, as in Figures 3-4 (E = 32: 5-6 % and
    1 %). ``zipf``: proportional to 1 / rank. Otherwise equal.
    """
    if routing == "paper":
        weights = [5.5 - 4.5 * i / max(1, num_experts - 1) for i in range(num_experts)]
    elif routing == "zipf":
        weights = [1 / (i + 1) for i in range(num_experts)]
    else:
        weights = [1.0] * num_experts
    return [weight / sum(weights) for weight in weights]


def selection(routing: str, tokens: int, num_experts: int, top_k: int, seed: int = 0) -> Tensor:
    """(N, K) different experts for each token. ``balanced`` takes turns, so that shares are equal to a row;
    ``one-expert`` sends every token to expert 0 and its other slots in turn; the others are drawn."""
    if routing == "balanced":
        return (torch.arange(tokens)[:, None] * top_k + torch.arange(top_k)) % num_experts
    if routing == "one-expert":
        others = 1 + (torch.arange(tokens)[:, None] * (top_k - 1) + torch.arange(top_k - 1)) % max(1, num_experts - 1)
        return torch.cat([torch.zeros(tokens, 1, dtype=torch.int64), others], dim=1)
    shares = torch.tensor(expert_shares(routing, num_experts), dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    return torch.multinomial(shares.expand(tokens, -1), top_k, replacement=False, generator=generator)


def features(batch_size: int, seq_len: int, d_model: int, seed: int) -> Tensor:
    """N(0, 1) inputs, (B, T, d_m), the same on every device."""
    return torch.randn(batch_size, seq_len, d_model, generator=torch.Generator().manual_seed(seed))


def route(x: Tensor, selected: Tensor, num_experts: int) -> Tensor:
    """``x`` with its first E features moved so that :func:`steer`ed routers select ``selected``.

    ValueError where the model is narrower than E.
    """
    if num_experts > x.shape[-1]:
        raise ValueError(f"{num_experts} experts cannot be told apart in {x.shape[-1]} features")
    chosen = torch.zeros(selected.shape[0], num_experts).scatter_(1, selected, 1.0).view(*x.shape[:-1], -1)
    moved = x.clone()
    moved[..., :num_experts] = MARGIN * (2 * chosen - 1) + 0.5 * x[..., :num_experts].clamp(-3, 3)
    return moved


@torch.no_grad()
def steer(layer: nn.Module) -> None:
    """Make a layer's router read the logit of expert e from feature e; a layer without such a router stays."""
    projection = _routing_projection(layer)
    if projection is not None:
        weight = projection.weight
        weight.zero_()
        weight[:, : weight.shape[0]] = torch.eye(weight.shape[0], dtype=weight.dtype, device=weight.device)


def steerable(layer: nn.Module) -> int:
    """How many experts (MoA) or routed heads (MoH) the layer's linear router chooses from; 0 without one."""
    projection = _routing_projection(layer)
    return 0 if projection is None else projection.weight.shape[0]


def _routing_projection(layer: nn.Module) -> nn.Linear | None:
    return getattr(getattr(layer, "router", None), "routing_projection", None)
