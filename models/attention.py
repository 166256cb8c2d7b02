"""The attention core and the base class of attention layers.

The core is masks, scores, softmax and weighted values. Its products are ``torch.matmul`` of two operands
that both carry the whole batch, because that is the one formulation which every MAC counter reads in full.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headcount.models.cache import HeadShape, KeyValueCache, value_tokens
from headcount.models.kernels.selection import REFERENCE, Selectable
from headcount.models.rotary import Rotary, rotate
from headcount.models.shapes import KeyHeads, KeyMask, Queries, QueryHeads, QueryMask, Sources


class Inputs(NamedTuple):
    """Inputs of an attention's implementation: tokens, projected keys and values, and options.

    Masks are True at padding. ``rotary`` rotates the queries; the keys are rotated already. ``dropout`` is the
    probability of dropping an attention weight. ``head_weights`` are factors of the heads' outputs. ``packed`` is what
    came of the queries in the product that made the keys and values too, where one product made all of them.
    """

    query: Queries
    key: KeyHeads
    value: Float[Tensor, "batch src kv_heads value_dim"]
    causal: bool = False
    key_padding_mask: KeyMask = None
    query_padding_mask: QueryMask = None
    rotary: Rotary | None = None
    dropout: float = 0.0
    head_weights: Float[Tensor, "batch #tgt heads"] | None = None
    packed: Float[Tensor, "batch tgt width"] | None = None

    @property
    def masks(self) -> dict[str, Any]:
        """Return the keyword arguments of :func:`hidden_keys`."""
        return {"causal": self.causal, "key_padding_mask": self.key_padding_mask}

    @property
    def core(self) -> dict[str, Any]:
        """Return the keyword arguments of :func:`attend`."""
        return self.masks | {"dropout": self.dropout}


def attend(
    query: QueryHeads,
    key: KeyHeads,
    value: Float[Tensor, "batch src kv_heads value_dim"],
    *,
    causal: bool = False,
    key_padding_mask: KeyMask = None,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Float[Tensor, "batch tgt heads value_dim"]:
    """Return softmax(Q K^T / sqrt(d_h)) V for h query heads over g key/value heads (arXiv 1706.03762, Eq. 1).

    g = h is multi-head, 1 < g < h grouped-query and g = 1 multi-query attention: query head i reads
    key/value head i // (h / g). ``causal`` hides keys after the query, the T queries being the last T of the
    S positions. ``key_padding_mask`` is True at keys to hide. A query that sees no key gets zeros.
    ``dropout`` is the probability of dropping an attention weight, 0 outside training. ``scale`` is what scores are
    multiplied by (default: 1 / sqrt(d_h)).
    """
    # one size at a time: torch.jit records every size that is read
    tgt_len, num_kv_heads = query.size(1), key.size(2)
    group = query.size(2) // num_kv_heads

    # (B, g, T*r, d_h): the r query heads of a group are further rows on their key/value head
    scale = query.size(3) ** -0.5 if scale is None else scale
    q = (query * scale).unflatten(2, (num_kv_heads, group)).transpose(1, 2).flatten(2, 3)
    k, v = key.transpose(1, 2), value.transpose(1, 2)

    scores = torch.matmul(q, k.transpose(-2, -1))
    hidden = hidden_keys(tgt_len, key.size(1), causal, key_padding_mask, query.device)
    if hidden is not None:
        # every query once for each of its r rows
        hidden = hidden[:, None, :, None, :].expand(-1, -1, tgt_len, group, -1).flatten(2, 3)
    weights = drop(masked_softmax(scores, hidden), dropout, True)

    return torch.matmul(weights, v).unflatten(2, (tgt_len, group)).transpose(1, 2).flatten(2, 3)


def hidden_keys(
    tgt_len: int | Tensor, src_len: int | Tensor, causal: bool, key_padding_mask: KeyMask, device: torch.device
) -> Bool[Tensor, "#batch #tgt src"] | None:
    """Return True where a query must not see a key, of shape (B or 1, T or 1, S); None if every key is seen.

    Lengths are tensors while torch.jit traces.
    """
    hidden = None if key_padding_mask is None else key_padding_mask[:, None, :]
    if causal:
        queries = torch.arange(tgt_len, device=device) + (src_len - tgt_len)
        future = (torch.arange(src_len, device=device)[None, :] > queries[:, None])[None]
        hidden = future if hidden is None else hidden | future
    return hidden


def masked_softmax(
    scores: Float[Tensor, "*rows src"], hidden: Bool[Tensor, "*#rows src"] | None
) -> Float[Tensor, "*rows src"]:
    """Compute the softmax over the visible keys; a row without visible keys is zero."""
    if hidden is None:
        return torch.softmax(scores, dim=-1)
    # the lowest finite score instead of -inf: a row without any visible key stays finite, and is zeroed after
    lowest = torch.finfo(scores.dtype).min
    return torch.softmax(scores.masked_fill(hidden, lowest), dim=-1).masked_fill(hidden, 0.0)


def split_heads(x: Float[Tensor, "batch seq width"], head_dim: int) -> Float[Tensor, "batch seq heads head_dim"]:
    """Reshape (B, T, h d_h) to (B, T, h, d_h)."""
    return x.unflatten(-1, (-1, head_dim))


def drop(x: Float[Tensor, "*shape"], probability: float, training: bool) -> Float[Tensor, "*shape"]:
    """Apply dropout in training; without an operation where ``probability`` is 0."""
    return F.dropout(x, probability) if training and probability > 0 else x


def zero_padding(x: Queries, padding_mask: QueryMask) -> Queries:
    """Return ``x`` with zeros at padded tokens."""
    return x if padding_mask is None else x.masked_fill(padding_mask[..., None], 0.0)


def project_together(x: Queries, *projections: nn.Linear) -> tuple[Tensor, ...]:
    """Return the outputs of ``projections`` for ``x``, columns of one product, as inference engines and fused layers
    compute q, k and v.

    Their weights are concatenated in each call: every projection has its own parameters.
    """
    weights, bias = [one.weight for one in projections], None
    if any(one.bias is not None for one in projections):
        zeros = (one.weight.new_zeros(len(one.weight)) for one in projections)
        bias = torch.cat([zero if one.bias is None else one.bias for one, zero in zip(projections, zeros, strict=True)])
    return F.linear(x, torch.cat(weights), bias).split([len(weight) for weight in weights], dim=-1)


class Attention(Selectable):
    """An attention layer: a variant adds its projections, and a function for each implementation of its configuration.

    An implementation maps the layer and its :class:`Inputs` to (B, T, d_m). Keys and values come from ``k_proj`` and
    ``v_proj``, unless a variant overrides ``project`` and ``stored_shapes``.
    """

    cache_type: type[KeyValueCache] = KeyValueCache
    takes_head_weights = False
    """Whether the implementations multiply the heads' outputs by ``head_weights``."""

    def add_projections(self, query: type[nn.Module] = nn.Linear, output: type[nn.Module] = nn.Linear) -> None:
        """Add dense projections of h query heads, of g key and value heads, and of the output, in this order."""
        config = self.config
        d_model, width, bias = config.d_model, config.num_heads * config.head_dim, config.bias
        kv_width = getattr(config, "num_kv_heads", config.num_heads) * config.head_dim
        self.q_proj = query(d_model, width, bias=bias)
        self.k_proj = nn.Linear(d_model, kv_width, bias=bias)
        self.v_proj = nn.Linear(d_model, kv_width, bias=bias)
        self.out_proj = output(width, d_model, bias=bias)

    def forward(
        self,
        query: Queries,
        key: Sources | None = None,
        value: Float[Tensor, "batch given d_model"] | None = None,
        *,
        causal: bool = False,
        key_padding_mask: Bool[Tensor, "batch stored"] | None = None,
        query_padding_mask: QueryMask = None,
        rotary: Rotary | None = None,
        cache: KeyValueCache | None = None,
        **own: Tensor,
    ) -> Queries:
        """Attend from (B, T, d_m) to the keys of (B, S, d_m), of the queries' tokens without ``key``, and to the values
        of ``value`` (B, S, d_m), of the keys' tokens without it.

        Masks are True at padding; padded queries are computed too, and give zeros. An open ``cache`` stores the keys
        and values of the queries after those that it has, and the queries see all S of them causally; a closed one
        gives the keys and values instead of ``key`` and ``value``. ``rotary`` rotates the queries and their keys.
        ``own`` are other fields of :class:`Inputs`. A token that holds a NaN makes every query that sees it
        NaN, and no other sequence.

        Raises ValueError for ``rotary`` with a ``key`` or in a variant without rotary positions, for a ``value``
        where keys and values are projected from one sequence, and for queries or keys without tokens. TypeError for
        ``own`` in a variant that takes none.
        """
        if rotary is not None and not self.config.rotary:
            raise ValueError(f"{self.config.variant} takes no rotary positions")
        if value is not None and not self.config.takes_values:
            raise ValueError(f"{self.config.variant} makes keys and values of one sequence: leave value out")
        # tokens after those in an open cache are one sequence with them
        causal = causal or (cache is not None and not cache.closed)
        if own and not self.takes_head_weights:
            raise TypeError(f"{type(self).__name__} takes no {', '.join(own)}")
        run = self.resolve_impl(query)
        is_self = key is None and value is None and (cache is None or not cache.closed)
        packed, *projected = (is_self and self.project_packed(query)) or (None,)
        k, v = self.keys_and_values(query, key, value, rotary, cache, projected)
        dropout = self.config.attention_dropout if self.training else 0.0
        masks = causal, key_padding_mask, query_padding_mask
        inputs = Inputs(query, k, v, *masks, rotary, dropout, packed=packed, **own)
        return zero_padding(self.finish(run(self, inputs)), query_padding_mask)

    def make_cache(
        self,
        batch_size: int,
        max_len: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> KeyValueCache:
        """Return an empty cache for ``max_len`` tokens (default: device and dtype of the weights)."""
        weight = next(self.parameters())
        device, dtype = weight.device if device is None else device, dtype or weight.dtype
        return self.cache_type(batch_size, max_len, *self.stored_shapes, device=device, dtype=dtype)

    def fill_cache(self, key: Sources, value: Float[Tensor, "batch given d_model"] | None = None) -> KeyValueCache:
        """Return a closed cache of the keys of ``key`` (B, S, d_m) and the values of ``value`` (default: ``key``), for
        queries that come one by one. ValueError where their lengths differ."""
        return self.cache_type.of(*self.project(key, value_tokens(key, value)))

    def keys_and_values(
        self,
        query: Queries,
        key: Sources | None,
        value: Float[Tensor, "batch given d_model"] | None,
        rotary: Rotary | None,
        cache: KeyValueCache | None,
        projected: Sequence[Tensor] = (),
    ) -> tuple[Float[Tensor, "batch stored kv_heads head_dim"], Float[Tensor, "batch stored v_heads v_dim"]]:
        """Return the keys of ``key`` (default: ``query``) and the values of ``value`` (default: the keys' tokens),
        after those in ``cache``; ``projected`` are keys and values (B, S, width) of the queries' tokens.

        Raises ValueError for a ``key`` with a ``cache``, which takes the query's tokens, or was closed before; for a
        ``value`` with a closed one, or of another length than the keys; and for ``rotary`` with a ``key``, whose
        positions it does not have.
        """
        if key is not None and rotary is not None:
            raise ValueError("rotary positions are those of the queries: leave key out")
        if cache is not None and key is not None:
            raise ValueError("give key or cache, not both; layer.fill_cache(key) makes a cache of keys")
        if cache is not None and cache.closed:
            if value is not None:
                raise ValueError("a closed cache has its values; layer.fill_cache(key, value) makes one")
            return cache.stored
        key = query if key is None else key
        if projected:
            new = self.split_stored(*projected, rotary)
        else:
            new = self.project(key, value_tokens(key, value), rotary)
        return new if cache is None else cache.append(*new)

    def combine(self, out: Float[Tensor, "batch tgt heads width"], query: Queries) -> Queries:
        """Return the output projection of all heads' outputs, for the tokens ``query``."""
        return self.out_proj(out.flatten(-2))

    def finish(self, out: Queries) -> Queries:
        """Return the output of the layer from that of its implementation. Variants override this."""
        return out

    def memory_arguments(self, memory: Sources, padding_mask: KeyMask, *, for_steps: bool = False) -> dict[str, Tensor]:
        """Return extra keyword arguments of the forward, computed from the encoder output (B, S, d_m).

        ``for_steps`` computes as much as possible in advance. ``padding_mask`` is True at padding. Variants that need
        extra arguments override this.
        """
        return {}

    @property
    def stored_shapes(self) -> tuple[HeadShape, HeadShape]:
        """Return g heads of width d_h, for keys and for values."""
        shape = len(self.k_proj.weight) // self.stored_width, self.stored_width
        return shape, shape

    @property
    def stored_width(self) -> int:
        """Return the width of a key/value head."""
        return self.config.head_dim

    def project(self, key: Sources, value: Sources, rotary: Rotary | None = None) -> tuple[KeyHeads, KeyHeads]:
        """Return the keys of ``key`` (B, S, d_m), rotated by ``rotary``, and the values of ``value`` (B, S, d_m)."""
        return self.split_stored(self.k_proj(key), self.v_proj(value), rotary)

    def split_stored(self, keys: Tensor, values: Tensor, rotary: Rotary | None) -> tuple[KeyHeads, KeyHeads]:
        """Return the heads of projected keys, rotated by ``rotary``, and of projected values."""
        return rotate(split_heads(keys, self.stored_width), rotary), split_heads(values, self.stored_width)

    def project_packed(self, tokens: Queries) -> Sequence[Tensor] | None:
        """Return queries, keys and values (B, T, width) by one product of ``tokens``; None where the implementation
        that runs makes them by a product each. Variants override this."""
        return None

    def automatic(self, query: Queries) -> str:
        """Return ``triton`` where it is available, else ``fused``, which takes every mask without (T, S) scores."""
        if self.is_available("triton", query):
            return "triton"
        return "fused" if any(impl.name == "fused" for impl in self.config.implementations) else REFERENCE
