"""Mixture of attention heads (arXiv 2210.05144): K of E attention experts for each token."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.models.attention import Attention, Inputs, attend, project_together
from headcount.models.configs.moa import MixtureOfAttentionHeadsConfig
from headcount.models.experts import ExpertLinear
from headcount.models.kernels.fused import fused_attend
from headcount.models.losses import balance_and_z_loss
from headcount.models.rotary import rotate
from headcount.models.router import TopKRouter
from headcount.models.shapes import Queries


def reference(layer: nn.Module, inputs: Inputs, attend: Callable = attend) -> Queries:
    """Compute the equations as written, from projected keys and values: every row by its selected expert."""
    routing = layer.router(inputs.query, inputs.query_padding_mask)
    slots = inputs.query.unsqueeze(2).expand(-1, -1, layer.config.top_k, -1)
    out = attend_slots(layer.q_proj(slots, routing.indices), inputs, attend)
    return layer.out_proj(out, routing.indices, routing.weights).sum(dim=2)


gathered = partial(reference, attend=fused_attend)


def attend_slots(
    query: Float[Tensor, "batch tgt slots width"], inputs: Inputs, attend: Callable
) -> Float[Tensor, "batch tgt slots width"]:
    """Attend with slots of g heads, of width D = g c: head j of every slot reads key/value head j."""
    key, value, rotary = inputs.key, inputs.value, inputs.rotary
    num_kv_heads, num_slots = key.shape[2], query.shape[2]
    if num_kv_heads == 1:
        return attend(rotate(query, rotary), key, value, **inputs.core)
    heads = query.unflatten(-1, (num_kv_heads, -1))
    # the heads that share a key/value head must lie side by side
    heads = rotate(heads.transpose(2, 3).flatten(2, 3), rotary)
    out = attend(heads, key, value, **inputs.core)
    return out.unflatten(2, (num_kv_heads, num_slots)).transpose(2, 3).flatten(3)


class MixtureOfAttentionHeads(Attention):
    """y_t = sum_{i in G(q_t)} w_i,t Softmax(q_t Wq_i (K Wk)^T / sqrt(D)) V Wv Wo_i (Eq. 6, 10-12).

    Wq_i and Wo_i are per expert and chosen by the same indices; Wk and Wv are shared by all experts, so the
    core is multi-query attention with K query heads. With g key/value heads (JetMoE, arXiv 2404.07413) an expert is g
    query heads of width c = D / g, head j of each on key/value head j, and scores are divided by sqrt(c).
    """

    routing_loss = balance_and_z_loss

    def __init__(self, config: MixtureOfAttentionHeadsConfig) -> None:
        super().__init__(config)
        d_model, num_experts, head_dim = config.d_model, config.num_experts, config.head_dim
        self.router = TopKRouter(d_model, num_experts, config.top_k, config.gates, config.noisy)
        self.q_proj = ExpertLinear(num_experts, d_model, head_dim, bias=config.bias)
        self.k_proj = nn.Linear(d_model, head_dim, bias=config.bias)
        self.v_proj = nn.Linear(d_model, head_dim, bias=config.bias)
        self.out_proj = ExpertLinear(num_experts, head_dim, d_model, bias=config.bias)
        self.output_bias = nn.Parameter(torch.zeros(d_model)) if config.output_bias else None

    @property
    def stored_width(self) -> int:
        """Return c = D / g."""
        return self.config.kv_head_dim

    def project_packed(self, tokens: Queries) -> Sequence[Tensor] | None:
        """Return the router's logits, keys and values by one product where ``triton`` runs every expert.

        The queries have a product of their own: the core reads them as the rows of one head, without gaps.
        """
        if self.impl_used != "triton" or self.config.top_k < self.config.num_experts:
            return None
        keys, values, logits = project_together(tokens, self.k_proj, self.v_proj, self.router.proj)
        return logits, keys, values

    def finish(self, out: Queries) -> Queries:
        """Add the output bias, once after the sum over experts."""
        return out if self.output_bias is None else out + self.output_bias

    def automatic(self, query: Tensor) -> str:
        """Return ``triton`` where it is available, else all experts at once where all are selected, else ``grouped``.

        Fewer rows than experts are gathered with their weights instead on CUDA, where each expert is a launch; more
        rows would copy more matrices than there are. On meta grouped rows have shapes in bfloat16 only.
        """
        if self.is_available("triton", query):
            return "triton"
        if self.config.top_k == self.config.num_experts:
            return "dense-all"
        few = query.is_cuda and query.shape[0] * query.shape[1] * self.config.top_k < self.config.num_experts
        return "gathered" if few or query.is_meta and query.dtype != torch.bfloat16 else "grouped"
