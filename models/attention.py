"""The attention core that every variant shares: masks, scores, softmax and weighted values.

The products are written as ``torch.matmul`` of two operands that both carry the whole batch, because that is
the one spelling which every MAC counter reads in full.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headcount.models.rotary import Rotary, rotate


def attend(
    query: Float[Tensor, "batch tgt heads head_dim"],
    key: Float[Tensor, "batch src kv_heads head_dim"],
    value: Float[Tensor, "batch src kv_heads head_dim"],
    *,
    causal: bool = False,
    key_padding_mask: Bool[Tensor, "batch src"] | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "batch tgt heads head_dim"]:
    """Softmax(Q K^T / sqrt(d_h)) V for h query heads over g key/value heads (arXiv 1706.03762, Eq. 1).

    g = h is multi-head, 1 < g < h grouped-query and g = 1 multi-query attention: query head i reads
    key/value head i // (h / g). ``causal`` hides keys after the query, the T queries being the last T of the
    S positions. ``key_padding_mask`` is True at keys to hide. A query that sees no key gets zeros.
    ``dropout`` is the probability of dropping an attention weight, 0 outside training.
    """
    batch_size, tgt_len, num_heads, head_dim = query.shape
    src_len, num_kv_heads = key.shape[1:3]
    group = num_heads // num_kv_heads

    # (B, g, T*r, d_h): the r query heads of a group are further rows on their key/value head
    q = (query * head_dim**-0.5).reshape(batch_size, tgt_len, num_kv_heads, group, head_dim)
    q = q.transpose(1, 2).reshape(batch_size, num_kv_heads, tgt_len * group, head_dim)
    k, v = key.transpose(1, 2), value.transpose(1, 2)

    scores = torch.matmul(q, k.transpose(-2, -1))
    hidden = hidden_keys(tgt_len, src_len, causal, key_padding_mask, query.device)
    if hidden is not None:
        # every query once for each of its r rows
        hidden = hidden[:, None, :, None, :].expand(-1, -1, tgt_len, group, -1).flatten(2, 3)
    weights = drop(masked_softmax(scores, hidden), dropout, True)

    out = torch.matmul(weights, v).reshape(batch_size, num_kv_heads, tgt_len, group, head_dim)
    return out.transpose(1, 2).reshape(batch_size, tgt_len, num_heads, head_dim)


def hidden_keys(
    tgt_len: int | Tensor,
    src_len: int | Tensor,
    causal: bool,
    key_padding_mask: Bool[Tensor, "batch src"] | None,
    device: torch.device,
) -> Bool[Tensor, "#batch #tgt src"] | None:
    """True where a query must not see a key, of shape (B or 1, T or 1, S); None if every key is seen.

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
    """Softmax over the keys that are not hidden; zeros in a row without any."""
    if hidden is None:
        return torch.softmax(scores, dim=-1)
    # the lowest finite score instead of -inf: a row without any visible key stays finite, and is zeroed after
    lowest = torch.finfo(scores.dtype).min
    return torch.softmax(scores.masked_fill(hidden, lowest), dim=-1).masked_fill(hidden, 0.0)


def split_heads(x: Float[Tensor, "batch seq width"], head_dim: int) -> Float[Tensor, "batch seq heads head_dim"]:
    """(B, T, h d_h) as (B, T, h, d_h)."""
    return x.view(*x.shape[:2], -1, head_dim)


def own_projection(
    layer: nn.Module, key: Float[Tensor, "batch src d_model"] | None = None, rotary: Rotary | None = None
) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """How ``layer`` makes keys and values of tokens: its k_proj and v_proj, the keys turned by ``rotary``.

    Raises ValueError for ``rotary`` beside a ``key``, whose positions it does not have.
    """
    if key is not None and rotary is not None:
        raise ValueError("rotary positions are those of the queries: leave key out")
    head_dim = layer.config.head_dim
    return lambda x: (rotate(split_heads(layer.k_proj(x), head_dim), rotary), split_heads(layer.v_proj(x), head_dim))


def drop(x: Float[Tensor, "*shape"], probability: float, training: bool) -> Float[Tensor, "*shape"]:
    """Dropout that leaves no operation behind where there is nothing to drop."""
    return F.dropout(x, probability) if training and probability > 0 else x


def zero_padded(
    x: Float[Tensor, "batch tgt d_model"], padding_mask: Bool[Tensor, "batch tgt"] | None
) -> Float[Tensor, "batch tgt d_model"]:
    """``x`` with zeros at padded tokens."""
    return x if padding_mask is None else x.masked_fill(padding_mask[..., None], 0.0)
