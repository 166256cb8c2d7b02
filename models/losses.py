"""Auxiliary losses and load statistics of routed layers (arXiv 2210.05144, Eq. 13-17, Figures 3-4).

The first three are plain functions of tensors; the others walk any module tree and read what its routers recorded
of their last forward. Padded query tokens are not counted.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headcount.models.router import Router, Routing
from headcount.models.shapes import QueryMask


class RoutingLoss(NamedTuple):
    """The loss that a routed layer adds to that of its model: summed over layers, or ``averaged``."""

    value: Float[Tensor, ""]
    averaged: bool = False


def expert_counts(
    indices: Int[Tensor, "batch tgt top_k"], num_experts: int, padding_mask: QueryMask = None
) -> Int[Tensor, "num_experts"]:
    """Return how many tokens selected each expert, (E,); the sum is K times the number of tokens."""
    selected = torch.zeros(*indices.shape[:2], num_experts, dtype=torch.int64, device=indices.device)
    selected = selected.scatter(-1, indices, 1)
    if padding_mask is not None:
        selected = selected.masked_fill(padding_mask[..., None], 0)
    return selected.sum(dim=(0, 1))


def balance_loss(
    probs: Float[Tensor, "batch tgt num_experts"],
    indices: Int[Tensor, "batch tgt top_k"],
    padding_mask: QueryMask = None,
) -> Float[Tensor, ""]:
    """Return L_a = N sum_i f_i P_i (Eq. 13-15); f: tokens per expert, P: summed probabilities, both of 1-norm 1.

    Only P carries a gradient. 1 when perfectly balanced, 0 without any token.
    """
    probs = probs.to(torch.promote_types(probs.dtype, torch.float32))
    if padding_mask is not None:
        probs = probs.masked_fill(padding_mask[..., None], 0.0)
    num_experts = probs.shape[-1]
    counts = expert_counts(indices, num_experts, padding_mask).to(probs.dtype)
    summed = probs.sum(dim=(0, 1))
    f = counts / counts.sum().clamp(min=1)
    p = summed / summed.sum().clamp(min=torch.finfo(probs.dtype).tiny)
    return num_experts * (f * p).sum()


def head_balance_loss(
    probs: Float[Tensor, "batch tgt num_experts"],
    indices: Int[Tensor, "batch tgt top_k"],
    padding_mask: QueryMask = None,
) -> Float[Tensor, ""]:
    """Return L_b = sum_i P_i f_i over routed heads (arXiv 2410.11842, Eq. 7): f_i the fraction of tokens that select
    head i, P_i its mean probability. Only P carries a gradient. r / E when perfectly balanced, 0 without tokens.
    """
    # balance_loss is E / r times this: its f counts selections, of which each token makes r
    return balance_loss(probs, indices, padding_mask) * (indices.shape[-1] / probs.shape[-1])


def z_loss(logits: Float[Tensor, "batch tgt num_experts"], padding_mask: QueryMask = None) -> Float[Tensor, ""]:
    """Return L_z = (1/T) sum_t (log sum_i exp x_{i,t})^2 (Eq. 16, bounds as in arXiv 2202.08906); 0 without tokens."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    squares = torch.logsumexp(logits, dim=-1) ** 2
    if padding_mask is None:
        return squares.mean()
    return squares.masked_fill(padding_mask, 0.0).sum() / (~padding_mask).sum().clamp(min=1)


def balance_and_z_loss(layer: nn.Module, recorded: Routing) -> RoutingLoss:
    """Return alpha L_a + beta L_z (second part of Eq. 17): the ``routing_loss`` of a layer whose configuration has
    balance_loss_weight and z_loss_weight."""
    _, indices, logits, probs, padding_mask = recorded
    balance = layer.config.balance_loss_weight * balance_loss(probs, indices, padding_mask)
    return RoutingLoss(balance + layer.config.z_loss_weight * z_loss(logits, padding_mask))


def routed_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Return the layers of ``model`` that route tokens, by module path ("" for ``model`` itself)."""
    for path, module in model.named_modules():
        router = getattr(module, "router", None)
        # a layer that routes no heads has no routing
        if isinstance(router, Router) and router.top_k:
            yield path, module


def record_routing(model: nn.Module, enabled: bool = True) -> None:
    """Store the last routing of every router outside training too, or stop doing so."""
    for _, module in routed_modules(model):
        module.router.record_routing = enabled


def auxiliary_loss(model: nn.Module) -> Float[Tensor, ""]:
    """Return the sum of ``routing_loss`` over routed layers, of their last forward; 0 without such layers.

    Raises RuntimeError where no forward was recorded.
    """
    total = next(model.parameters()).new_zeros(())
    averaged = []
    for path, module in routed_modules(model):
        loss = module.routing_loss(_last_routing(path, module.router))
        if loss.averaged:
            averaged.append(loss.value)
        else:
            total = total + loss.value
    return total + torch.stack(averaged).mean() if averaged else total


def tokens_per_expert(model: nn.Module) -> dict[str, Int[Tensor, "num_experts"]]:
    """Return module path -> how many tokens of the last recorded forward selected each expert, (E,).

    Raises RuntimeError where no forward was recorded.
    """
    counts = {}
    for path, module in routed_modules(model):
        routing = _last_routing(path, module.router)
        counts[path] = expert_counts(routing.indices, module.router.num_experts, routing.padding_mask)
    return counts


def _last_routing(path: str, router: Router) -> Routing:
    if router.recorded is None:
        raise RuntimeError(
            f"no routing recorded in {path or 'this layer'}; run a forward in training mode or after record_routing()"
        )
    return router.recorded
