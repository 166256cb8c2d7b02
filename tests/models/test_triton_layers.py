"""The implementation triton equals the float64 reference: whole layers, losses, caches."""

import pytest
import torch

from headcount.models.build import build
from headcount.models.configs.base import ConfigError
from headcount.models.configs.make import make_config
from headcount.models.losses import auxiliary_loss
from headcount.models.rotary import rotary_table
from tests.models.triton_cases import DEVICE, DTYPES, assert_near, features, memory_full_of_nan, needs_triton

pytestmark = needs_triton
__all__ = ["memory_full_of_nan"]

MOA = {
    "K2-E4-dm20-D16": dict(d_model=20, num_experts=4, top_k=2, head_dim=16),
    "K1-E3-dm16-D24-biased-plain": dict(d_model=16, num_experts=3, top_k=1, head_dim=24, bias=True, gates="released"),
    "K2-E5-dm20-D16-selected": dict(d_model=20, num_experts=5, top_k=2, head_dim=16, gates="selected"),
    "K5-E5-dm24-D16-biased": dict(d_model=24, num_experts=5, top_k=5, head_dim=16, bias=True),
}
MOH = {
    "h6-s2-r2-g2": dict(num_heads=6, num_shared_heads=2, top_k=2, num_kv_heads=2, head_dim=24),
    "h5-s1-r2-norm": dict(num_heads=5, num_shared_heads=1, top_k=2, head_dim=16, router="query_norm"),
}
B, T = 2, 7


def layers(attention, values, dtype, **more):
    """A layer and its reference in float64 with the layer's own, rounded weights."""
    config = make_config(dict(attention=attention, **values, **more))
    layer = build(config, device=DEVICE, dtype=dtype, impl="triton")
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.endswith("bias"):
                parameter.copy_(features(*parameter.shape, seed=7))
    reference = build(config, device=DEVICE, dtype=torch.float64)
    reference.load_state_dict({name: value.double() for name, value in layer.state_dict().items()})
    return layer, reference


def padding(*lengths, of=T):
    return torch.arange(of, device=DEVICE) >= torch.tensor(lengths, device=DEVICE)[:, None]


SITUATIONS = {
    "plain": {},
    "causal": {"causal": True},
    "padded": {"key_padding_mask": padding(7, 4), "query_padding_mask": padding(7, 4)},
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("situation", ["padded"])
@pytest.mark.parametrize("case", MOA)
def test_moa_gradients_and_losses(case, situation, dtype):
    found, expected = [], []
    for out, layer in zip((found, expected), layers("moa", MOA[case], dtype), strict=True):
        layer.train()
        x = features(B, T, layer.config.d_model, dtype=dtype).to(layer.k_proj.weight.dtype).requires_grad_()
        y = layer(x, **SITUATIONS[situation])
        loss = auxiliary_loss(layer)
        up = features(*y.shape, seed=3).to(y.dtype)
        out += [y, loss, *torch.autograd.grad((y * up).sum() + 100 * loss, [x, *layer.parameters()])]
    assert layer.impl_used == "reference"
    names = ["y", "loss", "x", *(name for name, _ in layer.named_parameters())]
    for name, a, b in zip(names, found, expected, strict=True):
        # the same vector added to every key changes no weight: its gradient is 0
        if name != "k_proj.bias":
            assert_near(a, b, dtype, name)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("attention, case", [*(("moa", case) for case in MOA), *(("moh", case) for case in MOH)])
@torch.no_grad()
def test_inference_matches_reference(attention, case, situation, dtype):
    values = MOA[case] if attention == "moa" else MOH[case] | {"d_model": 20}
    layer, reference = layers(attention, values, dtype)
    x = features(B, T, layer.config.d_model, dtype=dtype)
    assert_near(layer(x, **SITUATIONS[situation]), reference(x.double(), **SITUATIONS[situation]), dtype)


@pytest.mark.parametrize("attention, case", [("moa", "K2-E4-dm20-D16"), ("moh", "h6-s2-r2-g2")])
@torch.no_grad()
def test_decoding_matches_forward(attention, case):
    values = MOA[case] if attention == "moa" else MOH[case] | {"d_model": 20}
    layer, reference = layers(attention, values, torch.float32)
    x = features(B, T, layer.config.d_model)
    cache = layer.make_cache(B, 13)
    pieces = [layer(chunk, causal=True, cache=cache) for chunk in x.split([5, 1, 1], dim=1)]
    assert_near(torch.cat(pieces, 1), reference(x.double(), causal=True), torch.float32)


@torch.no_grad()
def test_cross_attention_and_rotary():
    layer, reference = layers("moa", MOA["K2-E4-dm20-D16"], torch.float32)
    x, key = features(B, T, 20), features(B, 17, 20, seed=1)
    assert_near(layer(x, key), reference(x.double(), key.double()), torch.float32)
    layer, reference = layers("moh", MOH["h5-s1-r2-norm"], torch.float32, d_model=20)
    x = features(B, T, 20)
    tables = (rotary_table(T, 16, 100.0, device=DEVICE, dtype=d) for d in (torch.float32, torch.float64))
    assert_near(layer(x, rotary=next(tables)), reference(x.double(), rotary=next(tables)), torch.float32)


def test_noisy_routing_matches_reference():
    layer, _ = layers("moa", MOA["K2-E4-dm20-D16"], torch.float32, noisy=True)
    layer.train()
    x, outs = features(B, T, 20), []
    for impl in ("triton", "reference"):
        layer.impl = impl
        torch.manual_seed(3)
        outs.append(layer(x))
    assert_near(outs[0], outs[1].detach().double(), torch.float32)
    assert layer.router.recorded.routing.indices.shape == (B, T, 2)


def test_float64_raises():
    layer, _ = layers("moa", MOA["K2-E4-dm20-D16"], torch.float64)
    with pytest.raises(ConfigError, match="takes bfloat16, float16 and float32, not torch.float64"):
        layer(features(B, T, 20, dtype=torch.float64))
