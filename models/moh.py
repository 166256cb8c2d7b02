"""Mixture-of-head attention (arXiv 2410.11842): a weighted sum of the heads that each token selects."""

from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headcount.models.attention import (
    attend,
    drop,
    hidden_keys,
    masked_softmax,
    own_projection,
    split_heads,
    zero_padded,
)
from headcount.models.cache import Cached, KeyValueCache, keys_and_values
from headcount.models.configs.moh import Form, Gates, MixtureOfHeadAttentionConfig
from headcount.models.configs.moh import Router as Scoring
from headcount.models.head_router import HeadGates, HeadRouter
from headcount.models.kernels.choose import REFERENCE, Selectable
from headcount.models.kernels.fused import fused_attend
from headcount.models.losses import RoutingLoss, head_balance_loss
from headcount.models.rotary import Rotary, rotate
from headcount.models.router import Recorded

GATHERED_BYTES = 16 * 2**20


def released(layer, x, key, value, *, query_padding_mask, rotary, attend=attend, **how) -> Tensor:
    """Every head computed, and multiplied by its gate: 0 where a token has not selected it (the released code)."""
    query = split_heads(layer.q_proj(x), layer.config.head_dim)
    selected, gates = layer.route(x, query_padding_mask, query)
    out = attend(rotate(query, rotary), key, value, **how)
    all_gates = gates.new_zeros(*gates.shape[:2], layer.config.num_heads).scatter(-1, selected, gates)
    return layer.out_proj((out * all_gates[..., None]).flatten(-2))


fused = partial(released, attend=fused_attend)


class MixtureOfHeadAttention(Cached, Selectable):
    """MoH(X, X') = sum_i g_i H^i W_O^i, H^i = Softmax(X W_Q^i (X' W_K^i)^T / sqrt(d_h)) X' W_V^i (Eq. 3-4).

    Released, it computes every H^i and multiplies it by its gate, 0 where the head is not selected:
    the authors' code. Ideal, it computes queries, scores, values and output rows of the k selected heads of
    each token only. Parameters and results are the same; keys and values are computed for all heads in both.
    A released layer can also be run ``fused``, and ``ragged``, which skips unselected heads on real hardware.
    """

    def __init__(self, config: MixtureOfHeadAttentionConfig) -> None:
        super().__init__(config)
        width, kv_width = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        self.router = HeadRouter(config)
        ideal = config.form is Form.IDEAL
        query = SelectedQueries if ideal and config.router is Scoring.LINEAR else nn.Linear
        self.q_proj = query(config.d_model, width, bias=config.bias)
        self.k_proj = nn.Linear(config.d_model, kv_width, bias=config.bias)
        self.v_proj = nn.Linear(config.d_model, kv_width, bias=config.bias)
        self.out_proj = (SelectedOutputs if ideal else nn.Linear)(width, config.d_model, bias=config.bias)

    def forward(
        self,
        query: Float[Tensor, "batch tgt d_model"],
        key: Float[Tensor, "batch src d_model"] | None = None,
        *,
        causal: bool = False,
        key_padding_mask: Bool[Tensor, "batch all_src"] | None = None,
        query_padding_mask: Bool[Tensor, "batch tgt"] | None = None,
        rotary: Rotary | None = None,
        cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "batch tgt d_model"]:
        """Attend from (B, T, d_m) to (B, S, d_m), to itself without ``key``; ``key`` gives the values too.

        ``rotary`` turns the queries and their own keys; ValueError for it beside a ``key``. With ``cache`` the
        queries' keys and values are stored behind those it holds, and the queries see them causally; a closed one
        gives the keys instead of ``key``. Masks are True at padding; padded queries are routed all the same, and
        yield zeros.
        """
        # tokens behind those in an open cache are one sequence with them
        causal = causal or (cache is not None and not cache.closed)
        k, v = keys_and_values(own_projection(self, key, rotary), query, key, cache)
        chosen = self.chosen(query)
        if self.config.form is Form.IDEAL:
            out = self._ideal(query, k, v, causal, key_padding_mask, query_padding_mask, rotary)
        else:
            masks = {"causal": causal, "key_padding_mask": key_padding_mask, "query_padding_mask": query_padding_mask}
            out = chosen(self, query, k, v, **masks, rotary=rotary, dropout=self._dropout())
        return zero_padded(out, query_padding_mask)

    def routing_loss(self, recorded: Recorded) -> RoutingLoss:
        """beta L_b (Eq. 7), with beta the config's balance_loss_weight; E beta L_b, averaged, as the released code."""
        (_, indices, _, probs), padding_mask = recorded
        loss = self.config.balance_loss_weight * head_balance_loss(probs, indices, padding_mask)
        released = self.config.gates is Gates.RELEASED
        return RoutingLoss(self.router.num_experts * loss if released else loss, averaged=released)

    def automatic(self, query: Tensor) -> str:
        """For the released form ``triton`` where it can be had, else ``fused``; ``ragged`` where it is asked for."""
        if self.offers("triton", query):
            return "triton"
        return "fused" if self.config.form is Form.RELEASED else REFERENCE

    def describe(self) -> str:
        """Sizes for the log."""
        config = self.config
        heads = f"h={config.num_heads} s={config.num_shared_heads} r={config.top_k} g={config.num_kv_heads}"
        return f"moh {config.form} d_model={config.d_model} {heads} d_h={config.head_dim}"

    def route(self, x: Tensor, padding_mask: Tensor | None, query: Tensor | None) -> HeadGates:
        """The heads and gates of each token; a ``query_norm`` router reads the queries before rotary positions."""
        return self.router(x, padding_mask, query if self.config.router is Scoring.QUERY_NORM else None)

    def _dropout(self) -> float:
        return self.config.attention_dropout if self.training else 0.0

    def _ideal(self, x, key, value, causal, key_padding_mask, query_padding_mask, rotary):
        head_dim = self.config.head_dim
        if self.config.router is Scoring.QUERY_NORM:
            query = split_heads(self.q_proj(x), head_dim)
            selected, gates = self.route(x, query_padding_mask, query)
            query = query.gather(2, selected[..., None].expand(-1, -1, -1, head_dim))
        else:
            selected, gates = self.route(x, query_padding_mask, None)
            query = self.q_proj(x, selected, head_dim)
        hidden = hidden_keys(x.shape[1], key.shape[1], causal, key_padding_mask, x.device)
        out = self.attend_selected(rotate(query, rotary), key, value, selected, hidden)
        return self.out_proj(out * gates[..., None], selected)

    def attend_selected(
        self,
        query: Float[Tensor, "batch tgt k head_dim"],
        key: Float[Tensor, "batch src kv_heads head_dim"],
        value: Float[Tensor, "batch src kv_heads head_dim"],
        selected: Int[Tensor, "batch tgt k"],
        hidden: Bool[Tensor, "#batch #tgt src"] | None,
    ) -> Float[Tensor, "batch tgt k head_dim"]:
        """Each row (token, slot) against the keys of its own head, gathered for it."""
        src_len, num_kv_heads, head_dim = key.shape[1:]
        group = self.config.num_heads // num_kv_heads
        # (B g, S, d_h), and for each row which of the B g it reads
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
            weights = drop(masked_softmax(scores, None if masks is None else masks[i]), self._dropout(), True)
            out.append(torch.bmm(weights, values[read]))
        return torch.cat(out).reshape(query.shape)


class SelectedQueries(nn.Linear):
    """The rows of a query projection that belong to selected heads; the parameters of the whole projection."""

    def forward(
        self, x: Float[Tensor, "batch tgt d_model"], selected: Int[Tensor, "batch tgt k"], head_dim: int
    ) -> Float[Tensor, "batch tgt k head_dim"]:
        """(B, T, d_m) through heads ``selected`` (B, T, k) each."""
        by_head = self.weight.unflatten(0, (-1, head_dim)).transpose(1, 2)
        rows = x[:, :, None].expand(-1, -1, selected.shape[-1], -1)
        query = gathered_product(rows, by_head, selected)
        return query if self.bias is None else query + self.bias.unflatten(0, (-1, head_dim))[selected]


class SelectedOutputs(nn.Linear):
    """The columns of an output projection that belong to selected heads; the parameters of the whole projection."""

    def forward(
        self, heads: Float[Tensor, "batch tgt k head_dim"], selected: Int[Tensor, "batch tgt k"]
    ) -> Float[Tensor, "batch tgt d_model"]:
        """Heads ``selected`` (B, T, k), each through its own columns, summed."""
        by_head = self.weight.t().unflatten(0, (-1, heads.shape[-1]))
        out = gathered_product(heads, by_head, selected).sum(dim=2)
        return out if self.bias is None else out + self.bias


def gathered_product(
    x: Float[Tensor, "batch tgt k fan_in"],
    by_head: Float[Tensor, "heads fan_in fan_out"],
    selected: Int[Tensor, "batch tgt k"],
) -> Float[Tensor, "batch tgt k fan_out"]:
    """Row (b, t, i) times the matrix of head ``selected[b, t, i]``; ``torch.bmm``, which every counter reads."""
    _, fan_in, fan_out = by_head.shape
    rows = x.reshape(-1, 1, fan_in)
    chunk = rows_per_chunk(rows, fan_in * fan_out)
    parts = zip(in_chunks(rows, chunk), in_chunks(selected.reshape(-1), chunk), strict=True)
    return torch.cat([torch.bmm(row, by_head[head]) for row, head in parts]).reshape(*selected.shape, fan_out)


def rows_per_chunk(rows: Float[Tensor, "rows 1 width"], gathered: int | Tensor) -> int | None:
    """How many rows at once, so that ``gathered`` elements for each fill at most GATHERED_BYTES; None on meta: all."""
    return None if rows.is_meta else max(1, GATHERED_BYTES // int(gathered * rows.element_size()))


def in_chunks(x: Tensor, chunk: int | None) -> tuple[Tensor, ...]:
    """``x`` in parts of ``chunk`` rows; whole for None."""
    return (x,) if chunk is None else x.split(chunk)
