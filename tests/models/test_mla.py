"""MLA against a loop over tokens and heads; its two forms against each other."""

import math
from itertools import product

import pytest
import torch

from headcount.models.build import build, example_inputs
from headcount.models.configs.make import make_config
from tests.models.turned import table, turned

SIZES = dict(attention="mla", d_model=13, num_heads=3, head_dim=5, rotary_dim=2, value_dim=7, kv_rank=11)
CASES = {
    "plain": SIZES,
    "query-latent-biased": SIZES | dict(query_rank=17, bias=True),
    "one-head": SIZES | dict(num_heads=1, head_dim=1, value_dim=1, kv_rank=3),
    "narrow-latent": SIZES | dict(kv_rank=1, query_rank=1, rotary_dim=4),
}
FORMS = ("released", "ideal")
LENGTHS = {"batch_size": 2, "tgt_len": 7, "src_len": 5}
every_case = pytest.mark.parametrize("case", CASES)
every_form = pytest.mark.parametrize("form", FORMS)
both_impls = pytest.mark.parametrize("impl", ["reference", "fused"])


def made(case, form="released", seed=0):
    """A float64 layer with no parameter at its start, and inputs (B, T, d_m) and (B, S, d_m)."""
    config = make_config(CASES[case] | dict(form=form))
    layer = build(config, dtype=torch.float64, seed=seed)
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return layer, *example_inputs(config, LENGTHS, dtype=torch.float64, seed=seed).values()


def normed(x, weight):
    return x / torch.sqrt(sum(value * value for value in x) / len(x) + 1e-6) * weight


def naive(layer, query, key=None, visible=lambda b, t, j: True, rotary=False):
    """Eq. 9-19 token by token and head by head; ``visible`` says which keys a query sees."""
    config, p = layer.config, dict(layer.named_parameters())
    h, d_h, d_r, d_v = config.num_heads, config.head_dim, config.rotary_dim, config.value_dim
    keys = query if key is None else key

    def product(name, x, rows=slice(None)):
        y = p[f"{name}.weight"][rows] @ x
        return y + p[f"{name}.bias"][rows] if f"{name}.bias" in p else y

    out = torch.zeros(*query.shape[:2], config.d_model, dtype=torch.float64)
    for b in range(len(query)):
        latents = [normed(product("kv_down_proj", x), p["kv_norm.weight"]) for x in keys[b]]
        shared = [turned(product("k_rotary_proj", x), j if rotary else None) for j, x in enumerate(keys[b])]
        for t in range(query.shape[1]):
            source = query[b, t]
            if config.query_rank is not None:
                source = normed(product("q_down_proj", source), p["q_norm.weight"])
            seen = [j for j in range(len(latents)) if visible(b, t, j)]
            heads = []
            for i in range(h):
                plain = slice(i * d_h, (i + 1) * d_h)
                q_c = product("q_proj", source, plain)
                q_r = product("q_rotary_proj", source, slice(i * d_r, (i + 1) * d_r))
                q = torch.cat((q_c, turned(q_r, t if rotary else None)))
                k = [torch.cat((product("k_proj", latents[j], plain), shared[j])) for j in seen]
                v = [product("v_proj", latents[j], slice(i * d_v, (i + 1) * d_v)) for j in seen]
                weights = torch.softmax(torch.stack([q @ one for one in k]) / math.sqrt(d_h + d_r), 0)
                heads.append(sum(w * one for w, one in zip(weights, v, strict=True)))
            out[b, t] = product("out_proj", torch.cat(heads))
    return out


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-11)


@every_form
@both_impls
@every_case
@torch.no_grad()
def test_outputs_match_loop(case, impl, form):
    layer, query, key = made(case, form)
    layer.impl = impl
    expected = naive(layer, query, key)
    close(layer(query, key), expected)
    close(layer(query, cache=layer.fill_cache(key)), expected)


@every_form
@both_impls
@every_case
@torch.no_grad()
def test_masks_and_rotary_match_loop(case, impl, form):
    layer, query, _ = made(case, form)
    layer.impl = impl
    padding = torch.zeros(2, 7, dtype=torch.bool)
    padding[0, 2:4] = True
    rotary = table(0, 7, layer.config.rotary_dim)
    out = layer(query, causal=True, key_padding_mask=padding, query_padding_mask=padding, rotary=rotary)
    expected = naive(layer, query, visible=lambda b, t, j: j <= t and not padding[b, j], rotary=True)
    close(out, expected.masked_fill(padding[..., None], 0.0))
    assert not out[0, 2:4].any()


@every_form
@both_impls
@torch.no_grad()
def test_decoding_matches_causal_forward(impl, form):
    layer, query, _ = made("query-latent-biased", form)
    layer.impl = impl
    whole = layer(query, causal=True, rotary=table(0, 7, layer.config.rotary_dim))
    cache, pieces = layer.make_cache(2, 11), []
    for chunk in query.split([3, 1, 1, 2], dim=1):
        pieces.append(layer(chunk, rotary=table(cache.length, chunk.shape[1], layer.config.rotary_dim), cache=cache))
    close(torch.cat(pieces, dim=1), whole)
    assert cache.num_bytes == 2 * 7 * (11 + 2) * 8


def test_default_sizes_are_of_the_paper():
    config = make_config(dict(attention="mla", d_model=5120, num_heads=40, query_rank=1536))
    sizes = (config.head_dim, config.rotary_dim, config.value_dim, config.kv_rank)
    assert sizes == (128, 64, 128, 512)


@every_case
def test_gradients_of_implementations_agree(case):
    results = []
    for form, impl in product(FORMS, ("reference", "fused")):
        layer, query, _ = made(case, form)
        layer.impl = impl
        inputs = query.clone().requires_grad_()
        layer(inputs, causal=True, rotary=table(0, 7, layer.config.rotary_dim)).square().sum().backward()
        results.append([inputs.grad, *(p.grad for p in layer.parameters())])
    for found in results[1:]:
        for one, other in zip(found, results[0], strict=True):
            close(one, other)
            assert one.any()


def test_llama_with_mla_decodes():
    sizes = dict(model="llama", d_ff=17, num_layers=2, vocab_size=19)
    with pytest.raises(ValueError, match="^rotary_dim must be even for rotary positions, not 3$"):
        make_config(SIZES | sizes | dict(rotary_dim=3))
    config = make_config(SIZES | sizes | dict(rotary_dim=4))
    model, tokens = build(config, dtype=torch.float64), torch.arange(14).view(2, 7)
    with torch.no_grad():
        whole, caches = model(tokens), model.make_caches(2, 7)
        steps = [model(tokens[:, t : t + 1], caches=caches) for t in range(7)]
    close(torch.cat(steps, 1), whole)
