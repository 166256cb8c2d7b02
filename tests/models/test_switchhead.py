"""SwitchHead against a loop over tokens, heads and experts."""

import math

import pytest
import torch

from headcount.models.build import build, example_inputs
from headcount.models.configs.make import make_config
from tests.models.turned import table, turned

SIZES = dict(attention="switchhead", d_model=13, num_heads=3, head_dim=4, num_experts=7, top_k=2)
CASES = {
    "K2-E7": SIZES,
    "K1-E7": SIZES | dict(top_k=1),
    "K5-E5": SIZES | dict(top_k=5, num_experts=5),
    "K1-E1": SIZES | dict(top_k=1, num_experts=1),
    "one-head": SIZES | dict(num_heads=1, head_dim=2),
}
LENGTHS = {"batch_size": 2, "tgt_len": 7, "src_len": 5}
every_case = pytest.mark.parametrize("case", CASES)
both_impls = pytest.mark.parametrize("impl", ["reference", "fused"])


def made(case, seed=0, **more):
    config = make_config(CASES[case] | more)
    layer = build(config, dtype=torch.float64, seed=seed)
    return layer, *example_inputs(config, LENGTHS, dtype=torch.float64, seed=seed).values()


def naive(layer, query, key=None, visible=lambda b, t, j: True, rotary=False):
    """The equations token by token, head by head and expert by expert; ``visible`` says which keys a query sees."""
    config = layer.config
    h, d, E, K = config.num_heads, config.head_dim, config.num_experts, config.top_k
    keys = query if key is None else key

    def mixed(router, experts, head, routed, x):
        """The sum of the K experts of ``head`` with the highest scores at token ``routed``, each times its gate."""
        scores = [
            1 / (1 + math.exp(-torch.dot(row, routed).item())) for row in router.weight[head * E : (head + 1) * E]
        ]
        chosen = sorted(range(E), key=lambda e: -scores[e])[:K]
        return sum(scores[e] * (x @ experts.weight[head * E + e]) for e in chosen)

    out = torch.zeros_like(query)
    for b in range(len(query)):
        for i in range(h):
            rows = slice(i * d, (i + 1) * d)
            k = [turned(layer.k_proj.weight[rows] @ x, j if rotary else None) for j, x in enumerate(keys[b])]
            v = [mixed(layer.router["value_proj"], layer.v_proj, i, x, x) for x in keys[b]]
            for t in range(query.shape[1]):
                seen = [j for j in range(len(k)) if visible(b, t, j)]
                q = turned(layer.q_proj.weight[rows] @ query[b, t], t if rotary else None)
                weights = torch.softmax(torch.stack([q @ k[j] for j in seen]) / math.sqrt(d), 0)
                head = sum(w * v[j] for w, j in zip(weights, seen, strict=True))
                out[b, t] += mixed(layer.router["out_proj"], layer.out_proj, i, query[b, t], head)
    return out


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


@both_impls
@every_case
@torch.no_grad()
def test_outputs_match_loop(case, impl):
    layer, query, key = made(case)
    layer.impl = impl
    expected = naive(layer, query, key)
    close(layer(query, key), expected)
    close(layer(query, cache=layer.fill_cache(key)), expected)


@both_impls
@every_case
@torch.no_grad()
def test_masks_and_rotary_match_loop(case, impl):
    layer, query, _ = made(case)
    layer.impl = impl
    padding = torch.zeros(2, 7, dtype=torch.bool)
    padding[0, 2:4] = True
    rotary = table(0, 7, layer.config.head_dim)
    out = layer(query, causal=True, key_padding_mask=padding, query_padding_mask=padding, rotary=rotary)
    expected = naive(layer, query, visible=lambda b, t, j: j <= t and not padding[b, j], rotary=True)
    close(out, expected.masked_fill(padding[..., None], 0.0))
    assert not out[0, 2:4].any()


def test_gradients_of_implementations_agree():
    results = []
    for impl in ("reference", "fused"):
        layer, query, _ = made("K2-E7")
        layer.impl = impl
        inputs = query.clone().requires_grad_()
        layer(inputs, causal=True).square().sum().backward()
        results.append([inputs.grad, *(p.grad for p in layer.parameters())])
    for one, other in zip(*results, strict=True):
        close(one, other)
        assert one.any()


@both_impls
@torch.no_grad()
def test_decoding_matches_causal_forward(impl):
    layer, query, _ = made("K2-E7")
    layer.impl = impl
    whole = layer(query, causal=True, rotary=table(0, 7, layer.config.head_dim))
    cache, pieces = layer.make_cache(2, 11), []
    for chunk in query.split([3, 1, 1, 2], dim=1):
        pieces.append(layer(chunk, rotary=table(cache.length, chunk.shape[1], layer.config.head_dim), cache=cache))
    close(torch.cat(pieces, dim=1), whole)
    assert cache.num_bytes == 2 * 7 * 2 * 3 * 4 * 8
