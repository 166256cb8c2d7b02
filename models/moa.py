"""Mixture of attention heads (arXiv 2210.05144): K of E attention experts for each token."""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headcount.models.attention import attend, own_projection, zero_padded
from headcount.models.cache import Cached, KeyValueCache, keys_and_values
from headcount.models.configs.moa import MixtureOfAttentionHeadsConfig
from headcount.models.kernels.choose import Selectable
from headcount.models.kernels.fused import fused_attend
from headcount.models.losses import RoutingLoss, balance_loss, z_loss
from headcount.models.router import Recorded, TopKRouter

GATHERED_BYTES = 16 * 2**20
# below it a CUDA launch per expert is thought to cost more than copies of weights; not measured here
FEW_ROWS = 64


class ExpertLinear(nn.Module):
    """y = x W_e + b_e, with the expert e chosen row by row; ``weight`` is (E, in, out), ``bias`` (E, out).

    Plain form: gather each row's weight matrix and multiply by ``torch.bmm``. Rows go in chunks whose
    gathered weights fill at most GATHERED_BYTES, on meta all at once; the split changes neither result nor count.
    """

    def __init__(self, num_experts: int, in_features: int, out_features: int, bias: bool = False) -> None:
        super().__init__()
        self.num_experts = num_experts
        self.in_features = in_features
        self.out_features = out_features
        self.weight = nn.Parameter(torch.empty(num_experts, in_features, out_features))
        self.bias = nn.Parameter(torch.empty(num_experts, out_features)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot's uniform range for each expert as a layer of its own; zero biases."""
        bound = (6 / (self.in_features + self.out_features)) ** 0.5
        nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(
        self,
        x: Float[Tensor, "batch tgt top_k in_features"],
        indices: Int[Tensor, "batch tgt top_k"],
        gates: Float[Tensor, "batch tgt top_k"] | None = None,
    ) -> Float[Tensor, "batch tgt top_k out_features"]:
        """Row (b, t, k) through expert ``indices[b, t, k]``; with ``gates`` g_e (x W_e + b_e)."""
        if gates is not None:
            # the product is linear in x, so the gate may act on the narrow side
            x = x * gates[..., None]
        rows, experts = [x.reshape(-1, 1, self.in_features)], [indices.reshape(-1)]
        if not x.is_meta:
            chunk = max(1, GATHERED_BYTES // (self.in_features * self.out_features * x.element_size()))
            rows, experts = rows[0].split(chunk), experts[0].split(chunk)
        y = torch.cat([torch.bmm(r, self.weight[e]) for r, e in zip(rows, experts, strict=True)])
        y = y.reshape(*indices.shape, self.out_features)
        if self.bias is None:
            return y
        bias = self.bias[indices]
        return y + (bias if gates is None else bias * gates[..., None])


def reference(
    layer: nn.Module,
    query: Float[Tensor, "batch tgt d_model"],
    key: Float[Tensor, "batch src 1 head_dim"],
    value: Float[Tensor, "batch src 1 head_dim"],
    query_padding_mask: Bool[Tensor, "batch tgt"] | None,
    *,
    attend: Callable = attend,
    **core,
) -> Float[Tensor, "batch tgt d_model"]:
    """The equations as they stand, from projected keys and values: every row through its own expert."""
    routing = layer.router(query, query_padding_mask)
    slots = query[:, :, None].expand(-1, -1, layer.config.top_k, -1)
    out = attend(layer.q_proj(slots, routing.indices), key, value, **core)
    return layer.out_proj(out, routing.indices, routing.weights).sum(dim=2)


gathered = partial(reference, attend=fused_attend)


def automatic_for(top_k: int, num_experts: int, num_tokens: int, dtype: torch.dtype, device: str) -> str:
    """What ``auto`` runs: all experts at once where all are selected anyway, else rows grouped by expert.

    A few rows are gathered with their weights instead: on CUDA, where an expert's launch costs more than
    copying its weights; and on meta, where grouped rows have shapes in bfloat16 only.
    """
    if top_k == num_experts:
        return "dense-all"
    if device == "cuda" and num_tokens * top_k < FEW_ROWS or device == "meta" and dtype != torch.bfloat16:
        return "gathered"
    return "grouped"


class MixtureOfAttentionHeads(Cached, Selectable):
    """y_t = sum_{i in G(q_t)} w_i,t Softmax(q_t Wq_i (K Wk)^T / sqrt(D)) V Wv Wo_i (Eq. 6, 10-12).

    Wq_i and Wo_i are per expert and chosen by the same indices; Wk and Wv are shared by all experts, so the
    core is multi-query attention with K query heads.
    """

    def __init__(self, config: MixtureOfAttentionHeadsConfig) -> None:
        super().__init__(config)
        d_model, num_experts, head_dim = config.d_model, config.num_experts, config.head_dim
        self.router = TopKRouter(d_model, num_experts, config.top_k, config.renormalise, config.noisy)
        self.q_proj = ExpertLinear(num_experts, d_model, head_dim, bias=config.bias)
        self.k_proj = nn.Linear(d_model, head_dim, bias=config.bias)
        self.v_proj = nn.Linear(d_model, head_dim, bias=config.bias)
        self.out_proj = ExpertLinear(num_experts, head_dim, d_model, bias=config.bias)

    def forward(
        self,
        query: Float[Tensor, "batch tgt d_model"],
        key: Float[Tensor, "batch src d_model"] | None = None,
        *,
        causal: bool = False,
        key_padding_mask: Bool[Tensor, "batch src"] | None = None,
        query_padding_mask: Bool[Tensor, "batch tgt"] | None = None,
        cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "batch tgt d_model"]:
        """Attend from (B, T, d_m) to (B, S, d_m), to itself without ``key``; ``key`` gives the values too.

        Masks are True at padding; padded queries are routed all the same, and yield zeros. With ``cache`` the
        queries' keys and values are stored behind those it holds, and they attend to all S of them; a closed
        one gives the keys instead of ``key``.
        """
        run = self.chosen(query)
        k, v = keys_and_values(own_projection(self), query, key, cache)
        out = run(
            self,
            query,
            k,
            v,
            query_padding_mask,
            causal=causal,
            key_padding_mask=key_padding_mask,
            dropout=self.config.attention_dropout if self.training else 0.0,
        )
        return zero_padded(out, query_padding_mask)

    def routing_loss(self, recorded: Recorded) -> RoutingLoss:
        """alpha L_a + beta L_z (second part of Eq. 17), with the config's balance_loss_weight and z_loss_weight."""
        (_, indices, logits, probs), padding_mask = recorded
        balance = self.config.balance_loss_weight * balance_loss(probs, indices, padding_mask)
        return RoutingLoss(balance + self.config.z_loss_weight * z_loss(logits, padding_mask))

    def automatic(self, query: Tensor) -> str:
        """``triton`` where it can be had, else the rule of :func:`automatic_for`."""
        if self.offers("triton", query):
            return "triton"
        num_tokens = query.shape[0] * query.shape[1]
        return automatic_for(self.config.top_k, self.config.num_experts, num_tokens, query.dtype, query.device.type)

    def describe(self) -> str:
        """Sizes for the log."""
        config = self.config
        return f"moa d_model={config.d_model} K={config.top_k} E={config.num_experts} D={config.head_dim}"
