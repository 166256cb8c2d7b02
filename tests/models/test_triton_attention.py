"""Attention of the Triton kernels equals the plain float64 core, forward and backward, under every mask."""

import pytest
import torch

from headcount.models.attention import attend
from headcount.models.kernels import triton_ops as ops
from tests.models.triton_cases import (
    DEVICE,
    DTYPES,
    TRITON,
    assert_gradients_near,
    assert_near,
    differentiable,
    features,
)

pytestmark = TRITON

# B sequences, T queries, S keys, K slots of a token, width D
QUERIES = {
    "B2-T7-S19-K3-D24": (2, 7, 19, 3, 24),
    "B1-T1-S37-K5-D16": (1, 1, 37, 5, 16),
    "B3-T17-S17-K2-D16": (3, 17, 17, 2, 16),
}
# and h heads over g key/value heads, k of them for a token
HEADS = {
    "B2-T19-S19-h6-g2-k3-D24": (2, 19, 19, 6, 2, 3, 24),
    "B1-T5-S33-h5-g5-k1-D16": (1, 5, 33, 5, 5, 1, 16),
    "B3-T1-S7-h4-g1-k4-D16": (3, 1, 7, 4, 1, 4, 16),
}
MASKS = {"all": (False, False), "causal": (True, False), "padded": (False, True), "causal-padded": (True, True)}


def hidden_keys(batch_size, src_len, is_padded):
    """The last sequence sees no key, the first all but the last third."""
    if not is_padded:
        return None
    hidden = torch.zeros(batch_size, src_len, dtype=torch.bool, device=DEVICE)
    hidden[0, src_len * 2 // 3 :] = True
    hidden[-1] = True
    return hidden


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("sizes", QUERIES.values(), ids=QUERIES)
def test_mqa_matches_reference(sizes, mask, dtype):
    batch_size, tgt_len, src_len, top_k, head_dim = sizes
    causal, padded = MASKS[mask]
    hidden = hidden_keys(batch_size, src_len, padded)
    q = features(batch_size, tgt_len, top_k, head_dim, dtype=dtype)
    k, v = (features(batch_size, src_len, head_dim, dtype=dtype, seed=seed) for seed in (1, 2))
    inputs, leaves = differentiable(q, k, v, features(batch_size, tgt_len, top_k, seed=3))
    out = ops.mqa(*inputs, hidden, causal)
    heads = (x[:, :, None] for x in leaves[1:3])
    expected = attend(leaves[0], *heads, causal=causal, key_padding_mask=hidden) * leaves[3][..., None]
    assert_gradients_near(out, expected, inputs, leaves, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("sizes", HEADS.values(), ids=HEADS)
def test_selected_heads_match_reference(sizes, mask, dtype):
    batch_size, tgt_len, src_len, num_heads, num_kv_heads, chosen, head_dim = sizes
    causal, padded = MASKS[mask]
    hidden = hidden_keys(batch_size, src_len, padded)
    torch.manual_seed(5)
    heads = torch.stack([torch.randperm(num_heads)[:chosen] for _ in range(batch_size * tgt_len)])
    heads = heads.view(batch_size, tgt_len, chosen).to(DEVICE, torch.int32)
    q = features(batch_size, tgt_len, num_heads, head_dim, dtype=dtype)
    k, v = (features(batch_size, src_len, num_kv_heads, head_dim, dtype=dtype, seed=seed) for seed in (1, 2))
    inputs, leaves = differentiable(q, k, v, features(*heads.shape, seed=3))
    out = ops.ragged(*inputs[:3], heads, inputs[3], hidden, causal)
    every = leaves[3].new_zeros(q.shape[:3]).scatter(-1, heads.long(), leaves[3])
    expected = attend(*leaves[:3], causal=causal, key_padding_mask=hidden) * every[..., None]
    assert_gradients_near(out, expected, inputs, leaves, dtype)
    if tgt_len == 1:
        step = ops.decode(q[:, 0], k, v, heads[:, 0], inputs[3][:, 0], hidden)[:, None]
        assert_near(step, expected, dtype, "decode")


def test_split_keys_match_reference():
    """Four parts of the keys, the last one short, from a cache with more room than it holds."""
    q, cache = features(2, 3, 16), [features(2, 600, 1, 16, seed=seed) for seed in (1, 2)]
    k, v = (x[:, :523] for x in cache)
    heads = torch.tensor([[0, 2], [1, 0]], device=DEVICE, dtype=torch.int32)
    gates = features(2, 2, seed=3)
    every = torch.zeros(2, 3, device=DEVICE).scatter(-1, heads.long(), gates)
    expected = attend(*(x.double() for x in (q[:, None], k, v)))[:, 0] * every[..., None]
    assert_near(ops.decode(q, k, v, heads, gates, None), expected, torch.float32)


def test_large_scores_stay_finite():
    q, k, v = features(1, 9, 2, 16, scale=40), features(1, 9, 16, seed=1, scale=40), features(1, 9, 16, seed=2)
    expected = attend(q.double(), k[:, :, None].double(), v[:, :, None].double(), causal=True)
    assert_near(ops.mqa(q, k, v, None, None, True), expected, torch.float32)
