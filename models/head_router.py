"""Selection of heads for each token, and their gates (arXiv 2410.11842, Eq. 3-10)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.models.configs.moh import Gates, HeadSelection
from headcount.models.configs.moh import Router as Scoring
from headcount.models.router import Router, Routing
from headcount.models.shapes import Queries, QueryHeads, QueryMask, SelectedHeads


class HeadRouter(Router):
    """Two-stage routing: within the shared heads and within the routed ones, then between the two groups.

    ``printed`` gates (Eq. 5-6): alpha_1 Softmax(W_s x)_i for a shared head, alpha_2 Softmax(W_r x)_i for a
    selected routed head, [alpha_1, alpha_2] = Softmax(W_h x). ``released`` gates: the selected routed
    probabilities are renormalised and times r, the shared ones times s, the pair times 2, so that uniform logits
    make every gate 1. W_r exists where r > 0, W_s where s > 1, W_h where r > 0 and s > 0; a factor without its
    matrix is 1. Padded tokens are routed like any other, so that shapes do not depend on a mask.

    Router ``query_norm`` has no matrices: head i scores |q_i| / std over the routed heads, from queries before
    rotary positions; gates are 1 for the selected heads and 0 for the others, with the gradient of the probability
    of that score (Eq. 9-10): of every routed head where ``every`` head's output is there to weigh, else of those
    selected.

    What is recorded is the routing of the routed heads, numbered from 0.
    """

    def __init__(self, config: HeadSelection) -> None:
        super().__init__(config.num_routed_heads, config.top_k)
        self.config = config
        s, d_model = config.num_shared_heads, config.d_model
        linear = config.router is Scoring.LINEAR
        self.routed_proj = nn.Linear(d_model, self.num_experts, bias=False) if linear and self.top_k else None
        self.shared_proj = nn.Linear(d_model, s, bias=False) if linear and s > 1 else None
        self.group_proj = nn.Linear(d_model, 2, bias=False) if linear and s and self.top_k else None

    @property
    def routing_projection(self) -> nn.Linear | None:
        """The routing matrix W_r; None for a router without one."""
        return self.routed_proj

    def forward(
        self, x: Queries, padding_mask: QueryMask = None, query: QueryHeads | None = None, *, every: bool = False
    ) -> tuple[SelectedHeads, Float[Tensor, "batch tgt k"]]:
        """Return the k = s + r heads of each token (B, T, d_m), shared ones first, and their gates.

        A ``query_norm`` router reads the unrotated ``query`` (B, T, h, d_h) instead. With ``every`` it gives the gates
        of all h heads, which Eq. 10 passes a gradient to, for an implementation that computes every head.
        """
        s, r, released = self.config.num_shared_heads, self.top_k, self.config.gates is Gates.RELEASED
        by_norm = self.config.router is Scoring.QUERY_NORM
        ones = x.new_ones(()).expand(*x.shape[:2], 1)
        indices, gates = [], []
        if s:
            indices.append(torch.arange(s, device=x.device).expand(*x.shape[:2], s))
            gates.append(ones.expand(-1, -1, s))
            if self.shared_proj is not None:
                gates[0] = torch.softmax(self.shared_proj(x), dim=-1) * (s if released else 1)
        if r:
            logits = self.score_norms(query) if by_norm else self.routed_proj(x)
            probs = torch.softmax(logits, dim=-1)
            # selected by logits: in bfloat16 many probabilities are equal whose logits differ
            selected = torch.topk(logits, r, dim=-1)[1]
            weights = probs.gather(-1, selected)
            self.record(Routing(weights, selected, logits, probs), padding_mask)
            indices.append(selected + s)
            if by_norm and every:
                indices[-1] = torch.arange(s, s + self.num_experts, device=x.device).expand_as(probs)
                weights = torch.zeros_like(probs).scatter(-1, selected, 1.0) + (probs - probs.detach())
            elif by_norm:
                weights = 1 + weights - weights.detach()
            elif released:
                weights = weights / weights.sum(dim=-1, keepdim=True) * r
            gates.append(weights)
        if self.group_proj is not None:
            groups = torch.softmax(self.group_proj(x), dim=-1) * (2 if released else 1)
            gates = [groups[..., i : i + 1] * gate for i, gate in enumerate(gates)]
        return torch.cat(indices, dim=-1), torch.cat(gates, dim=-1)

    def weigh_all(
        self, selected: SelectedHeads, gates: Float[Tensor, "batch tgt k"]
    ) -> Float[Tensor, "batch tgt heads"]:
        """Return the gates (B, T, h) of all heads: 0 where a token has not selected one."""
        return gates.new_zeros(*gates.shape[:2], self.config.num_heads).scatter(-1, selected, gates)

    def score_norms(self, query: QueryHeads) -> Float[Tensor, "batch tgt routed"]:
        """Return the scores |q_i| / std over the routed heads, of unrotated queries (B, T, h, d_h)."""
        # the gradient at a query of 0 is 0; on meta, torch before 2.13 keeps a last size of 1 by default
        routed = query[:, :, self.config.num_shared_heads :]
        norms = torch.linalg.vector_norm(routed, dim=-1, keepdim=True).squeeze(-1)
        deviation = norms.std(dim=-1, keepdim=True)
        # equal norms are equal scores, whatever the divisor
        return norms / deviation.masked_fill(deviation == 0, 1.0)
