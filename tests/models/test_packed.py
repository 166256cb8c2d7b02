"""Queries, keys and values as one product: the reference's outputs and gradients, with fewer products."""

import pytest
import torch

from headcount.models.build import build
from headcount.models.configs.make import make_config
from tests.cases import assert_close, features, padding, randomise
from tests.models.test_attention_layers import compare
from tests.models.test_decoding import Products

MHA = dict(attention="mha", d_model=11, num_heads=6, head_dim=5)


def layers(**sizes):
    config = make_config(MHA | sizes)
    return [randomise(build(config, dtype=torch.float64, impl=impl)) for impl in ("packed", "reference")]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("num_kv_heads", [1, 2, 6])
def test_grouped_heads_match_reference(num_kv_heads, bias, causal):
    sequences = [features(3, 7, 11)]
    masks = dict(causal=causal, query_padding_mask=padding((7, 2, 5), 7))
    compare(*layers(num_kv_heads=num_kv_heads, bias=bias), sequences, **masks)


@pytest.mark.parametrize("num_kv_heads", [1, 2, 6])
@torch.no_grad()
def test_decoding_and_cross_attention_match_reference(num_kv_heads):
    found, expected = layers(num_kv_heads=num_kv_heads)
    x, other = features(3, 7, 11), features(3, 13, 11, seed=6)
    assert_close(found(x, other), expected(x, other))
    assert_close(found(x, x, other[:, :7]), expected(x, x, other[:, :7]))
    cache, closed = found.make_cache(3, 7), found.fill_cache(other)
    steps = [found(part, cache=cache) for part in x.split((5, 1, 1), dim=1)]
    assert_close(torch.cat(steps, 1), expected(x, causal=True))
    assert_close(found(x, cache=closed), expected(x, other))


@torch.no_grad()
def test_self_attention_has_two_products():
    for layer, count in zip(layers(), (2, 4), strict=True):
        with Products() as products:
            layer.to(torch.float32)(features(3, 7, 11).float())
        assert products.rows.count(3 * 7) == count
