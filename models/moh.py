"""Mixture-of-head attention (arXiv 2410.11842), as released, and computing only the heads that each token selects."""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headcount.models.attention import Attention, Inputs, attend, drop, hidden_keys, masked_softmax, split_heads
from headcount.models.configs.moh import Form, Gates, MixtureOfHeadAttentionConfig, Router
from headcount.models.experts import gathered_product, in_chunks, rows_per_chunk
from headcount.models.head_router import HeadRouter
from headcount.models.kernels.fused import fused_attend
from headcount.models.losses import RoutingLoss, head_balance_loss
from headcount.models.rotary import rotate
from headcount.models.router import Routing
from headcount.models.shapes import KeyHeads, Queries, SelectedHeads

FEWEST_TOKENS_OF_RAGGED = 512
"""Tokens of a sequence from which packing the queries of each head pays off on the CPU."""


def reference(layer: nn.Module, inputs: Inputs, attend: Callable = attend, every: bool = True) -> Queries:
    """Compute every head and multiply it by its gate: 0 where a token has not selected it (the released code).

    ``every``: whether quantised gates of heads that are not selected have a gradient too (Eq. 10).
    """
    q = split_heads(layer.q_proj(inputs.query), layer.config.head_dim)
    selected, gates = layer.router(inputs.query, inputs.query_padding_mask, q, every=every)
    out = attend(rotate(q, inputs.rotary), inputs.key, inputs.value, **inputs.core)
    all_gates = layer.router.weigh_all(selected, gates)
    return layer.out_proj((out * all_gates[..., None]).flatten(-2))


fused = partial(reference, attend=fused_attend)


def selected_heads(layer: nn.Module, inputs: Inputs) -> Queries:
    """Compute Eq. 3-4 over the heads that each token selects: the ideal form, of any MoH layer's parameters."""
    head_dim, query, key = layer.config.head_dim, inputs.query, inputs.key
    if layer.config.router is Router.QUERY_NORM:
        q = split_heads(layer.q_proj(query), head_dim)
        selected, gates = layer.router(query, inputs.query_padding_mask, q)
        q = q.gather(2, selected[..., None].expand(-1, -1, -1, head_dim))
    else:
        selected, gates = layer.router(query, inputs.query_padding_mask)
        q = _with_forward(SelectedQueryProjection, layer.q_proj)(query, selected, head_dim)
    hidden = hidden_keys(query.shape[1], key.shape[1], device=query.device, **inputs.masks)
    group = layer.config.num_heads // layer.config.num_kv_heads
    out = attend_selected(rotate(q, inputs.rotary), key, inputs.value, selected, group, hidden, inputs.dropout)
    return _with_forward(SelectedOutputProjection, layer.out_proj)(out * gates[..., None], selected)


def _with_forward(kind: type[nn.Linear], module: nn.Linear) -> Callable:
    """Return ``module`` if it is of ``kind``, else the forward of ``kind`` with the parameters of ``module``."""
    return module if isinstance(module, kind) else partial(kind.forward, module)


def attend_selected(
    query: Float[Tensor, "batch tgt k head_dim"],
    key: KeyHeads,
    value: KeyHeads,
    selected: SelectedHeads,
    group: int,
    hidden: Bool[Tensor, "#batch #tgt src"] | None,
    dropout: float,
) -> Float[Tensor, "batch tgt k head_dim"]:
    """Attend from each token's selected heads to their keys; ``group`` query heads share one key/value head."""
    src_len, num_kv_heads, head_dim = key.shape[1:]
    # (B g, S, d_h), and for each row the index of the one that it reads
    keys, values = (x.transpose(1, 2).flatten(0, 1) for x in (key, value))
    batch = torch.arange(query.shape[0], device=query.device)[:, None, None]
    reads = (batch * num_kv_heads + selected // group).reshape(-1)
    rows = (query * head_dim**-0.5).reshape(-1, 1, head_dim)
    chunk = rows_per_chunk(rows, src_len * head_dim)
    masks = None
    if hidden is not None:
        masks = in_chunks(hidden[:, :, None].expand(*selected.shape, -1).reshape(-1, 1, src_len), chunk)
    out = []
    for i, (row, read) in enumerate(zip(in_chunks(rows, chunk), in_chunks(reads, chunk), strict=True)):
        scores = torch.bmm(row, keys[read].transpose(1, 2))
        weights = drop(masked_softmax(scores, None if masks is None else masks[i]), dropout, True)
        out.append(torch.bmm(weights, values[read]))
    return torch.cat(out).reshape(query.shape)


class MixtureOfHeadAttention(Attention):
    """MoH(X, X') = sum_i g_i H^i W_O^i, H^i = Softmax(X W_Q^i (X' W_K^i)^T / sqrt(d_h)) X' W_V^i (Eq. 3-4).

    Released, it computes every H^i and multiplies it by its gate, 0 where the head is not selected: the authors'
    code. The ideal form has the same parameters and results without the heads that a token does not select; keys and
    values are computed for all heads in both, and all queries where a ``query_norm`` router needs them. ``ragged``
    skips unselected heads on real hardware. Where gates are quantised, the gradient of Eq. 10 reaches every routed head
    in the released form, selected or not; neither ``ragged`` nor the ideal form has the outputs of unselected heads
    that it needs, and passes it to selected ones alone.
    """

    def __init__(self, config: MixtureOfHeadAttentionConfig) -> None:
        super().__init__(config)
        ideal, linear = config.form is Form.IDEAL, config.router is Router.LINEAR
        query_proj = SelectedQueryProjection if ideal and linear else nn.Linear
        out_proj = SelectedOutputProjection if ideal else nn.Linear
        self.router = HeadRouter(config)
        self.add_projections(query_proj, out_proj)

    def automatic(self, query: Queries) -> str:
        """Return ``ragged`` instead of ``fused`` on the CPU where it is faster and no gradient or graph can differ.

        On one thread it takes 0.75 of the time at 2,048 tokens and half of the heads, as long at 256, and more below.
        """
        chosen, config = super().automatic(query), self.config
        skips_most = 2 * config.num_active_heads <= config.num_heads and query.shape[1] >= FEWEST_TOKENS_OF_RAGGED
        drops = self.training and config.attention_dropout > 0
        differs = drops or torch.is_grad_enabled() or torch.compiler.is_compiling()
        return "ragged" if chosen == "fused" and query.is_cpu and skips_most and not differs else chosen

    def routing_loss(self, recorded: Routing) -> RoutingLoss:
        """Return beta L_b (Eq. 7) with beta = balance_loss_weight; E beta L_b, averaged, as the released code."""
        _, indices, _, probs, padding_mask = recorded
        loss = self.config.balance_loss_weight * head_balance_loss(probs, indices, padding_mask)
        released = self.config.gates is Gates.RELEASED
        return RoutingLoss(self.router.num_experts * loss if released else loss, averaged=released)


class SelectedQueryProjection(nn.Linear):
    """Query projection that computes the rows of selected heads; it has the parameters of all heads."""

    def forward(self, x: Queries, selected: SelectedHeads, head_dim: int) -> Float[Tensor, "batch tgt k head_dim"]:
        """Project (B, T, d_m) with the heads ``selected`` (B, T, k) of each token."""
        by_head = self.weight.unflatten(0, (-1, head_dim)).transpose(1, 2)
        rows = x[:, :, None].expand(-1, -1, selected.shape[-1], -1)
        query = gathered_product(rows, by_head, selected)
        return query if self.bias is None else query + self.bias.unflatten(0, (-1, head_dim))[selected]


class SelectedOutputProjection(nn.Linear):
    """Output projection that uses the columns of selected heads; it has the parameters of all heads."""

    def forward(self, heads: Float[Tensor, "batch tgt k head_dim"], selected: SelectedHeads) -> Queries:
        """Project the outputs of the heads ``selected`` (B, T, k) and return their sum."""
        by_head = self.weight.t().unflatten(0, (-1, heads.shape[-1]))
        out = gathered_product(heads, by_head, selected).sum(dim=2)
        return out if self.bias is None else out + self.bias
