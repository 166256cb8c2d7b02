"""Arguments of F.scaled_dot_product_attention, which has no fused kernel for some combinations."""

import pytest
import torch
import torch.nn.functional as F

from headcount.models.kernels.fused import fused_attend

B, D = 2, 5
MASKED, WHOLE = True, False


@pytest.fixture
def sdpa_calls(monkeypatch):
    """Record the key/value heads, the shape of the mask, ``is_causal`` and ``enable_gqa`` of each call."""
    calls, run = [], F.scaled_dot_product_attention

    def record(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
        mask = None if attn_mask is None else tuple(attn_mask.shape)
        calls.append((key.shape[1], value.shape[1], mask, is_causal, enable_gqa))
        kwargs = dict(attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa)
        return run(query, key, value, **kwargs)

    monkeypatch.setattr(F, "scaled_dot_product_attention", record)
    return calls


@pytest.mark.parametrize(
    "heads, kv_heads, tgt_len, src_len, causal, padded, expected",
    [
        (3, 3, 7, 11, False, WHOLE, (3, 3, None, False, False)),
        (3, 3, 7, 11, False, MASKED, (3, 3, (B, 1, 1, 11), False, False)),
        # the kernel's own causal mask aligns the first query with the first key, and takes no other beside it
        (3, 3, 7, 7, True, WHOLE, (3, 3, None, True, False)),
        (3, 3, 7, 11, True, WHOLE, (3, 3, (1, 1, 7, 11), False, False)),
        (3, 3, 7, 7, True, MASKED, (3, 3, (B, 1, 7, 7), False, False)),
        # the last position sees everything
        (3, 3, 1, 1, True, WHOLE, (3, 3, None, False, False)),
        (3, 3, 1, 11, True, WHOLE, (3, 3, None, False, False)),
        # CUDA has a kernel for grouped heads without a mask; with one, every head has its own keys
        (6, 2, 7, 11, False, WHOLE, (2, 2, None, False, True)),
        (6, 2, 7, 7, True, WHOLE, (2, 2, None, True, True)),
        (6, 2, 7, 11, False, MASKED, (6, 6, (B, 1, 1, 11), False, False)),
        (6, 2, 7, 11, True, WHOLE, (6, 6, (1, 1, 7, 11), False, False)),
        # heads of one key/value head are more queries
        (6, 1, 7, 11, False, MASKED, (1, 1, (B, 1, 1, 11), False, False)),
        (6, 1, 7, 7, True, WHOLE, (1, 1, None, True, True)),
    ],
)
def test_sdpa_arguments_have_a_fused_kernel(heads, kv_heads, tgt_len, src_len, causal, padded, expected, sdpa_calls):
    generator = torch.Generator().manual_seed(1)
    shapes = (tgt_len, heads), (src_len, kv_heads), (src_len, kv_heads)
    q, k, v = (torch.randn(B, *shape, D, generator=generator) for shape in shapes)
    hidden = torch.arange(src_len) >= torch.tensor([[2], [src_len]]) if padded else None
    assert fused_attend(q, k, v, causal=causal, key_padding_mask=hidden).shape == q.shape
    assert sdpa_calls == [expected]
