"""Attention with separate query, key and value sequences (section 4 of the MoA paper)."""

from dataclasses import replace

import pytest
import torch

from headcount.bench.count import count_macs
from headcount.models.build import build
from tests.cases import assert_close, cases, configurations, made, takes_keys

WAYS = ("form", "router", "gates")
CASES = [case for case in cases(*WAYS) if case.values[0].takes_values]
OF_ONE = [case for case in cases("form") if not case.values[0].takes_values and takes_keys(case.values[0])]


def features(*shape, seed=5):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def reference_of(config, impl):
    """The reference in float64, of the form whose gradient the impl has."""
    form = {"form": impl.gradient or config.form} if hasattr(config, "form") else {}
    return build(replace(config, **form), dtype=torch.float64)


def results(layer, tensors, **masks):
    """The output, and the gradients of every sequence and parameter."""
    tensors = [x.to(next(layer.parameters()).dtype).requires_grad_() for x in tensors]
    out = layer(*tensors, **masks)
    up = torch.cos(torch.arange(out.numel(), dtype=out.dtype)).view_as(out)
    return [out, *torch.autograd.grad(out, [*tensors, *layer.parameters()], up, materialize_grads=True)]


@pytest.mark.parametrize("config, impl", CASES)
def test_separate_values_match_reference(config, impl):
    layer, _ = made(config, impl)
    sequences = [features(2, n, config.d_model, seed=n + i) for i, n in enumerate((7, 11, 11))]
    hidden = torch.arange(11) >= torch.tensor([[11], [4]])
    found = results(layer, sequences, key_padding_mask=hidden)
    for one, other in zip(found, results(reference_of(config, impl), sequences, key_padding_mask=hidden), strict=True):
        assert_close(one, other)
    # the gradient of a key is not that of its value
    assert not torch.allclose(found[2], found[3], atol=1e-3)


@pytest.mark.parametrize("config, impl", CASES)
@torch.no_grad()
def test_values_default_to_keys(config, impl):
    layer, inputs = made(config, impl)
    query, key = inputs.values()
    assert torch.equal(layer(query, key), layer(query, key, key))
    assert torch.equal(layer(query), layer(query, value=query))


@pytest.mark.parametrize("config, impl", [c for c in CASES if c.values[1].masks and not c.values[0].no_step])
@torch.no_grad()
def test_caches_hold_separate_values(config, impl):
    layer, inputs = made(config, impl)
    query, key = inputs.values()
    value = key.flip(1)
    assert_close(layer(query, cache=layer.fill_cache(key, value)), layer(query, key, value))
    beside = query.flip(0)
    cache = layer.make_cache(2, 7)
    steps = [layer(query[:, i:j], value=beside[:, i:j], cache=cache) for i, j in ((0, 3), (3, 4), (4, 7))]
    assert_close(torch.cat(steps, dim=1), layer(query, value=beside, causal=True))


@pytest.mark.parametrize("config, impl", CASES[:1])
def test_mismatched_values_raise(config, impl):
    layer, inputs = made(config, impl)
    query, key = inputs.values()
    with pytest.raises(ValueError, match="^value must have as many tokens as the keys, 11, not 7$"):
        layer(query, key, query)
    with pytest.raises(ValueError, match="^value must have as many tokens as the keys, 7, not 11$"):
        layer.fill_cache(query, key)
    with pytest.raises(ValueError, match=r"^a closed cache has its values; layer.fill_cache\(key, value\) makes one$"):
        layer(query, value=key, cache=layer.fill_cache(key))


@pytest.mark.parametrize("config, impl", OF_ONE)
def test_unsupported_values_raise(config, impl):
    layer, inputs = made(config, impl)
    query, key = inputs.values()
    with pytest.raises(ValueError, match=f"^{config.variant} makes keys and values of one sequence: leave value out$"):
        layer(query, key, key)


@pytest.mark.parametrize("name, config", [(n, c) for n, c in configurations(*WAYS) if c.takes_values])
def test_separate_values_have_equal_macs(name, config):
    layer = build(config, device="meta")
    query, key = (torch.zeros(2, n, config.d_model, device="meta") for n in (7, 11))
    assert count_macs(layer, query, key, key.clone()).macs == count_macs(layer, query, key).macs
