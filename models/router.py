"""Token-wise choice of K among E experts (arXiv 2210.05144, Eq. 2-3 and 7-9)."""

import weakref
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from headcount.models.configs.moa import Gates
from headcount.models.shapes import Queries, QueryMask


class Routing(NamedTuple):
    """K experts with their weights for each token, and the logits and probabilities that selected them.

    ``padding_mask``: which tokens are padding, in a routing that is recorded for the losses and statistics.
    """

    weights: Float[Tensor, "batch tgt top_k"]
    indices: Int[Tensor, "batch tgt top_k"]
    logits: Float[Tensor, "batch tgt num_experts"]
    probs: Float[Tensor, "batch tgt num_experts"]
    padding_mask: QueryMask = None


class Router(nn.Module):
    """Chooses ``top_k`` of ``num_experts`` for each token.

    The last routing is stored in ``recorded`` while training, or where ``record_routing`` is set; models/losses.py
    reads it there. It can be differentiated until a backward reaches it, and is numbers alone from then on; copies
    and pickles of the router have none.
    """

    def __init__(self, num_experts: int, top_k: int) -> None:
        super().__init__()
        self.num_experts = num_experts
        self.top_k = top_k
        self.record_routing = False
        self.recorded: Routing | None = None

    @property
    def is_recorded(self) -> bool:
        """Whether routings are stored: none in plain inference, since a stored tensor would outlive the forward."""
        return self.training or self.record_routing

    def record(self, routing: Routing, padding_mask: QueryMask) -> None:
        """Store a routing in training, or where ``record_routing`` is set."""
        self.recorded = routing._replace(padding_mask=padding_mask) if self.is_recorded else None
        # a compiled graph takes no such hook
        if self.recorded is not None and routing.logits.requires_grad and not torch.compiler.is_compiling():
            routing.logits.register_hook(_Release(self, routing.logits))

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the recorded routing, which belongs to one graph."""
        return super().__getstate__() | {"recorded": None}


class _Release:
    """Hook that detaches a recorded routing once a gradient reaches its logits; it has weak references only."""

    def __init__(self, router: Router, logits: Tensor) -> None:
        self.router, self.logits = weakref.ref(router), weakref.ref(logits)

    def __call__(self, grad: Tensor) -> None:
        router = self.router()
        # a later forward may have recorded another routing
        if router is not None and router.recorded is not None and router.recorded.logits is self.logits():
            *parts, padding_mask = router.recorded
            router.recorded = Routing(*(part.detach() for part in parts), padding_mask)


class TopKRouter(Router):
    """p = Softmax(x W_g) (Eq. 7), G(x) = TopK(p, K) (Eq. 8), w_i = p_i / Detach(sum_{j in G} p_j) (Eq. 9).

    ``gates`` ``released``: w_i = p_i; ``selected``: w = Softmax(TopK(x W_g)) (Eq. 2), whose gradient passes through
    the denominator. With ``noisy`` the logits get N(0, 1) * Softplus(x W_noise) added in training (Eq. 3). Padded
    tokens are routed like any other, so that shapes do not depend on a mask.
    """

    def __init__(
        self, d_model: int, num_experts: int, top_k: int, gates: Gates = Gates.PRINTED, noisy: bool = False
    ) -> None:
        super().__init__(num_experts, top_k)
        self.gates = gates
        self.proj = nn.Linear(d_model, num_experts, bias=False)
        self.noise_proj = nn.Linear(d_model, num_experts, bias=False) if noisy else None

    @property
    def routing_projection(self) -> nn.Linear:
        """W_g, whose row e gives the logit of expert e."""
        return self.proj

    def forward(
        self,
        x: Queries,
        padding_mask: QueryMask = None,
        *,
        ranked: bool = True,
        logits: Float[Tensor, "batch tgt num_experts"] | None = None,
    ) -> Routing:
        """Route tokens (B, T, d_m); ``padding_mask`` is only recorded, for the losses and statistics.

        Experts of a token come by falling weight; ``ranked=False`` allows any order, and spares the top-K
        where K = E. ``logits`` are x W_g, where they are known already.
        """
        logits = self.proj(x) if logits is None else logits
        if self.noise_proj is not None and self.training:
            logits = logits + torch.randn_like(logits) * F.softplus(self.noise_proj(x))
        probs = torch.softmax(logits, dim=-1)
        if not ranked and self.top_k == self.num_experts:
            # all probabilities sum to 1 as they are
            weights, indices = probs, torch.arange(self.num_experts, device=x.device).expand_as(probs)
        elif self.gates is Gates.SELECTED:
            weights, indices = torch.topk(logits, self.top_k, dim=-1)
            weights = torch.softmax(weights, dim=-1)
        else:
            # selected by logits: in bfloat16 many probabilities are equal whose logits differ
            indices = torch.topk(logits, self.top_k, dim=-1)[1]
            weights = probs.gather(-1, indices)
            if self.gates is Gates.PRINTED:
                weights = weights / weights.sum(dim=-1, keepdim=True).detach()
        routing = Routing(weights, indices, logits, probs)
        self.record(routing, padding_mask)
        return routing
