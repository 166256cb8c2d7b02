"""Three sequences, as section 4 of the MoA paper has them: values of other tokens than the keys, in every arm."""

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


def reference_of(config, arm):
    """The reference in float64, of the form whose gradient the arm has."""
    form = {"form": arm.gradient or config.form} if hasattr(config, "form") else {}
    return build(replace(config, **form), dtype=torch.float64)


def results(layer, tensors, **masks):
    """The output, and the gradients of every sequence and parameter."""
    tensors = [x.to(next(layer.parameters()).dtype).requires_grad_() for x in tensors]
    out = layer(*tensors, **masks)
    up = torch.cos(torch.arange(out.numel(), dtype=out.dtype)).view_as(out)
    return [out, *torch.autograd.grad(out, [*tensors, *layer.parameters()], up, materialize_grads=True)]


@pytest.mark.parametrize("config, arm", CASES)
def test_every_arm_reads_values_of_their_own_sequence_forward_and_backward(config, arm):
    layer, _ = made(config, arm)
    sequences = [features(2, n, config.d_model, seed=n + i) for i, n in enumerate((7, 11, 11))]
    hidden = torch.arange(11) >= torch.tensor([[11], [4]])
    found = results(layer, sequences, key_padding_mask=hidden)
    for one, other in zip(found, results(reference_of(config, arm), sequences, key_padding_mask=hidden), strict=True):
        assert_close(one, other)
    # the gradient of a key is not that of its value
    assert not torch.allclose(found[2], found[3], atol=1e-3)


@pytest.mark.parametrize("config, arm", CASES)
@torch.no_grad()
def test_without_values_they_are_the_keys(config, arm):
    layer, inputs = made(config, arm)
    query, key = inputs.values()
    assert torch.equal(layer(query, key), layer(query, key, key))
    assert torch.equal(layer(query), layer(query, value=query))


@pytest.mark.parametrize("name, config", [(n, c) for n, c in configurations(*WAYS) if c.takes_values])
@torch.no_grad()
def test_the_output_is_affine_in_the_values_unless_they_choose_experts(name, config):
    layer = build(config, dtype=torch.float64)
    query, key, value, other = (features(2, n, config.d_model, seed=i) for i, n in enumerate((7, 11, 11, 11)))
    zero = layer(query, key, torch.zeros_like(value))
    mixed = 2 * layer(query, key, value) + 3 * layer(query, key, other) - 4 * zero
    affine = torch.allclose(layer(query, key, 2 * value + 3 * other), mixed, rtol=1e-9, atol=1e-9)
    assert affine == isinstance(layer.v_proj, torch.nn.Linear)


@pytest.mark.parametrize("config, arm", [c for c in CASES if c.values[1].masks and not c.values[0].no_step])
@torch.no_grad()
def test_caches_hold_the_keys_of_one_and_the_values_of_another(config, arm):
    layer, inputs = made(config, arm)
    query, key = inputs.values()
    value = key.flip(1)
    assert_close(layer(query, cache=layer.fill_cache(key, value)), layer(query, key, value))
    beside = query.flip(0)
    cache = layer.make_cache(2, 7)
    steps = [layer(query[:, i:j], value=beside[:, i:j], cache=cache) for i, j in ((0, 3), (3, 4), (4, 7))]
    assert_close(torch.cat(steps, dim=1), layer(query, value=beside, causal=True))


@pytest.mark.parametrize("config, arm", CASES[:1])
def test_values_that_fit_no_keys_are_refused(config, arm):
    layer, inputs = made(config, arm)
    query, key = inputs.values()
    with pytest.raises(ValueError, match="^value must have as many tokens as the keys, 11, not 7$"):
        layer(query, key, query)
    with pytest.raises(ValueError, match="^value must have as many tokens as the keys, 7, not 11$"):
        layer.fill_cache(query, key)
    with pytest.raises(ValueError, match=r"^a closed cache has its values; layer.fill_cache\(key, value\) makes one$"):
        layer(query, value=key, cache=layer.fill_cache(key))


@pytest.mark.parametrize("config, arm", OF_ONE)
def test_where_one_sequence_gives_keys_and_values_a_second_is_refused(config, arm):
    layer, inputs = made(config, arm)
    query, key = inputs.values()
    with pytest.raises(ValueError, match=f"^{config.variant} makes keys and values of one sequence: leave value out$"):
        layer(query, key, key)


@pytest.mark.parametrize("name, config", [(n, c) for n, c in configurations(*WAYS) if c.takes_values])
def test_values_of_their_own_cost_what_those_of_the_keys_do(name, config):
    layer = build(config, device="meta")
    query, key = (torch.zeros(2, n, config.d_model, device="meta") for n in (7, 11))
    assert count_macs(layer, query, key, key.clone()).macs == count_macs(layer, query, key).macs
