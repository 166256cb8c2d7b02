"""The attention core by torch's fused kernels: the same function as ``models.attention.attend``."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from headcount.models.attention import hidden_keys
from headcount.models.shapes import KeyHeads, KeyMask, QueryHeads


def fused_attend(
    query: QueryHeads,
    key: KeyHeads,
    value: Float[Tensor, "batch src kv_heads value_dim"],
    *,
    causal: bool = False,
    key_padding_mask: KeyMask = None,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Float[Tensor, "batch tgt heads value_dim"]:
    """Return softmax(Q K^T / sqrt(d_h)) V without materialised scores; arguments as those of ``attend``."""
    batch_size, tgt_len, num_heads, head_dim = query.shape
    src_len, num_kv_heads = key.shape[1:3]
    # a single query is the last position and sees everything
    causal = causal and tgt_len > 1
    # the kernels' own causal mask aligns the first query with the first key
    in_kernel = causal and tgt_len == src_len and key_padding_mask is None
    hidden = hidden_keys(tgt_len, src_len, causal and not in_kernel, key_padding_mask, query.device)
    visible = None if hidden is None else ~hidden[:, None]

    k, v = key.transpose(1, 2), value.transpose(1, 2)
    is_even = tgt_len == 1 or query.stride(1) == num_heads * head_dim
    if num_kv_heads == 1 and not causal and is_even:
        # every row sees the same keys: the heads of a token are further queries of one head, in any order; without a
        # copy where no columns of another projection lie between tokens
        q = query.reshape(batch_size, 1, tgt_len * num_heads, head_dim)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=visible, dropout_p=dropout, scale=scale)
        return out.reshape(batch_size, tgt_len, num_heads, value.shape[-1])
    q, grouped = query.transpose(1, 2), num_kv_heads < num_heads
    if grouped and visible is not None:
        # CUDA has no kernel for grouped heads with a mask, and would fall back to materialised scores; a single head is
        # repeated without a copy
        group, grouped = num_heads // num_kv_heads, False
        k, v = (x[:, :, None].expand(-1, -1, group, -1, -1).flatten(1, 2) for x in (k, v))
    out = F.scaled_dot_product_attention(
        q, k, v, attn_mask=visible, dropout_p=dropout, is_causal=in_kernel, enable_gqa=grouped, scale=scale
    )
    return out.transpose(1, 2)


def attend_shared(
    query: Float[Tensor, "batch tgt shared head_dim"], key: KeyHeads, value: KeyHeads, group: int, **masks
) -> Float[Tensor, "batch tgt shared head_dim"]:
    """Attend from the first heads of a layer, of which ``group`` share a key/value head; masks as ``fused_attend``."""
    shared = query.shape[2]
    # a slice is not copied
    read = torch.arange(shared, device=key.device) // group if shared % group else slice(shared // group)
    return fused_attend(query, key[:, :, read], value[:, :, read], **masks)
