"""The attention core against its equation: values of another width than keys, and another scale, in both kernels."""

import pytest
import torch

from headcount.models.attention import attend
from headcount.models.kernels.fused import fused_attend


@pytest.mark.parametrize("core", [attend, fused_attend], ids=["reference", "fused"])
@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("kv_heads", [1, 2, 6])
@pytest.mark.parametrize("causal, padded", [(False, False), (True, False), (False, True), (True, True)])
def test_attention_core_matches_equation(core, scale, kv_heads, causal, padded):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(2, *shape, generator=generator, dtype=torch.float64)
        for shape in ((5, 6, 3), (7, kv_heads, 3), (7, kv_heads, 11))
    )
    hidden = torch.zeros(2, 5, 7, dtype=torch.bool)
    mask = None
    if causal:
        # the 5 queries are the last of the 7 positions
        hidden |= torch.ones(5, 7, dtype=torch.bool).triu(3)
    if padded:
        mask = torch.arange(7) < torch.tensor([[2], [0]])
        hidden |= mask[:, None]
    group = 6 // kv_heads
    scores = torch.einsum("bthd,bshd->bhts", q, k.repeat_interleave(group, 2)) * (3**-0.5 if scale is None else scale)
    weights = scores.masked_fill(hidden[:, None], -torch.inf).softmax(-1)
    expected = torch.einsum("bhts,bshv->bthv", weights, v.repeat_interleave(group, 2))
    torch.testing.assert_close(core(q, k, v, causal=causal, key_padding_mask=mask, scale=scale), expected)
