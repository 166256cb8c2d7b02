"""The implementation triton equals the float64 reference: outputs, losses, gradients, caches."""

import pytest
import torch

from headcount.models.build import build
from headcount.models.configs.base import ConfigError
from headcount.models.configs.make import make_config
from headcount.models.kernels import grouped
from headcount.models.kernels.triton_launch import recording
from headcount.models.rotary import rotary_table
from tests.cases import padding, randomise
from tests.models.test_attention_layers import outcome
from tests.models.triton_cases import DEVICE, DTYPES, INTERPRETED, TRITON, assert_near, features
from tests.models.triton_launches import Launching, Operations

pytestmark = TRITON

MOA = dict(attention="moa", d_model=20, num_experts=4, top_k=2, head_dim=16)
MOH = dict(attention="moh", d_model=20, num_heads=6, num_shared_heads=2, top_k=2, num_kv_heads=2, head_dim=24)
CASES = {
    "moa-K2-E4-D16": MOA,
    "moa-K1-E3-D24-biased-plain": MOA | dict(num_experts=3, top_k=1, head_dim=24, bias=True, gates="released"),
    "moa-K2-E5-D16-selected": MOA | dict(num_experts=5, gates="selected"),
    "moa-K5-E5-D16-biased": MOA | dict(num_experts=5, top_k=5, bias=True),
    "moa-K3-E3-D24-g2": MOA | dict(num_experts=3, top_k=3, head_dim=24, num_kv_heads=2, gates="selected"),
    "moh-h6-s2-r2-g2": MOH,
    "moh-h6-s3-r1-g2": MOH | dict(num_shared_heads=3, top_k=1),
    "moh-h6-s0-r2-printed": MOH | dict(num_shared_heads=0, gates="printed"),
    "moh-h6-s6-r0-g2": MOH | dict(num_shared_heads=6, top_k=0),
    "moh-h5-s1-r2-norm": MOH | dict(num_heads=5, num_shared_heads=1, num_kv_heads=5, head_dim=16, router="query_norm"),
}
PADDED = {name: padding((7, 4), 7).to(DEVICE) for name in ("key_padding_mask", "query_padding_mask")}
# float16 in the interpreter is tested in test_triton_ops.py
every_dtype = pytest.mark.parametrize("dtype", DTYPES[:1] if INTERPRETED else DTYPES, ids=str)
B, T = 2, 7


def layers(values, dtype):
    """Return a layer, and its float64 reference with the layer's rounded weights."""
    config = make_config(values)
    layer = randomise(build(config, device="cpu", dtype=dtype, impl="triton")).to(DEVICE)
    reference = build(config, device=DEVICE, dtype=torch.float64)
    reference.load_state_dict(layer.state_dict())
    return layer, reference


@every_dtype
@pytest.mark.parametrize("case", [case for case in CASES if "moa" in case])
def test_gradients_and_losses_match_reference(case, dtype):
    layer, reference = layers(CASES[case], dtype)
    x = features(B, T, 20, dtype=dtype)
    found, expected = (outcome(one, [x], **PADDED) for one in (layer, reference))
    names = ["y", "loss", "x", *(name for name, _ in layer.named_parameters())]
    for name, a, b in zip(names, found, expected, strict=True):
        # the same vector added to every key changes no weight: its gradient is 0
        if name != "k_proj.bias":
            assert_near(a, b, dtype, name)


@pytest.mark.parametrize("case", ["moa-K2-E4-D16", "moa-K1-E3-D24-biased-plain"])
def test_grouped_takes_order_of_kernel(case, monkeypatch):
    layer, reference = layers(CASES[case], torch.float32)
    layer.impl = "grouped"
    monkeypatch.setattr(grouped, "has_fast_path", lambda device, dtype: True)
    monkeypatch.setattr(layer, "is_available", lambda name, query: name == "triton")
    monkeypatch.setattr(grouped, "sort_rows", None)
    x = features(B, T, 20)
    found, expected = (outcome(one, [x], **PADDED) for one in (layer, reference))
    names = ["y", "loss", "x", *(name for name, _ in layer.named_parameters())]
    for name, a, b in zip(names, found, expected, strict=True):
        if name != "k_proj.bias":
            assert_near(a, b, torch.float32, name)


# other ones run without masks in float32 where routing is recorded
PLAIN = [case for case in CASES if "r0" in case or not INTERPRETED]


@every_dtype
@pytest.mark.parametrize(
    "case, masks",
    [(case, PADDED | {"causal": True}) for case in CASES] + [(case, {}) for case in PLAIN],
    ids=[*(f"{case}-causal-padded" for case in CASES), *(f"{case}-plain" for case in PLAIN)],
)
@torch.no_grad()
def test_inference_matches_reference(case, masks, dtype):
    layer, reference = layers(CASES[case], dtype)
    x = features(B, T, 20, dtype=dtype)
    assert_near(layer(x, **masks), reference(x.double(), **masks), dtype)


@pytest.mark.parametrize("case", [case for case in CASES if "r0" not in case])
@torch.no_grad()
def test_recorded_routing_matches_reference(case):
    found, expected = layers(CASES[case], torch.float32)
    x = features(B, T, 20)
    for layer, given in ((found, x), (expected, x.double())):
        layer.router.record_routing = True
        y = layer(given)
    every = found.config.variant == "moa" and found.config.top_k == found.config.num_experts
    for name in ("weights", "indices", "logits", "probs"):
        one, other = (getattr(layer.router.recorded, name) for layer in (found, expected))
        if every and name in ("weights", "indices"):
            # all experts in their order, instead of by falling weight
            one, other = one.sort(-1).values, other.sort(-1).values
        assert_near(one, other.double(), torch.float32, name)
    found.router.record_routing = False
    assert_near(found(x), y, torch.float32)
    assert found.router.recorded is None


@every_dtype
@pytest.mark.parametrize("case", ["moa-K2-E4-D16", "moa-K5-E5-D16-biased", "moh-h6-s3-r1-g2"])
@torch.no_grad()
def test_decoding_by_split_keys_matches_reference(case, dtype, monkeypatch):
    monkeypatch.setattr("headcount.models.kernels.triton_ops.splits_of_keys", lambda tiles, src_len: 4)
    layer, reference = layers(CASES[case], dtype)
    x, caches = features(B, T, 20, dtype=dtype), [one.make_cache(B, T) for one in (layer, reference)]
    for start, stop in ((0, 5), (5, 6), (6, 7)):
        new = x[:, start:stop]
        found, expected = (
            one(part, causal=True, cache=cache)
            for one, part, cache in zip((layer, reference), (new, new.double()), caches, strict=True)
        )
        assert_near(found, expected, dtype)


@pytest.mark.parametrize("case", ["moa-K2-E4-D16", "moh-h5-s1-r2-norm"])
@torch.no_grad()
def test_decoding_and_cross_attention_match_forward(case):
    layer, reference = layers(CASES[case], torch.float32)
    x, key, cache = features(B, T, 20), features(B, 17, 20, seed=1), layer.make_cache(B, 13)
    assert_near(layer(x, key), reference(x.double(), key.double()), torch.float32)
    rotary, exact = (rotary_table(T, 16, 100.0, device=DEVICE, dtype=d) for d in (torch.float32, torch.float64))
    expected = reference(x.double(), causal=True, rotary=exact)
    pieces = []
    for start, stop in ((0, 5), (5, 6), (6, 7)):
        turned = type(rotary)(*(part[start:stop] for part in rotary))
        pieces.append(layer(x[:, start:stop], causal=True, cache=cache, rotary=turned))
    assert_near(torch.cat(pieces, 1), expected, torch.float32)


@pytest.mark.parametrize("case", ["moa-K2-E4-D16", "moa-K3-E3-D24", "moh-h6-s2-r2-g2"])
@torch.no_grad()
def test_decoding_step_has_few_launches(case):
    config = make_config((CASES | {"moa-K3-E3-D24": MOA | dict(num_experts=3, top_k=3, head_dim=24)})[case])
    layer = build(config, device="meta", impl="triton")
    is_sparse = "K2-E4" in case
    for max_len, number in ((7, 9), (512, 9), (8192, 9 + is_sparse)):
        cache = layer.make_cache(B, max_len)
        cache.length = max_len - 1
        # the second mode runs what an operator of ours runs, and leaves the rest to the first
        with Operations() as operations, recording() as launched, Launching():
            layer(torch.empty(B, 1, 20, device="meta"), cache=cache)
        assert operations.number + len(launched) == number


def test_float64_raises():
    layer, _ = layers(MOA, torch.float64)
    with pytest.raises(ConfigError, match="takes bfloat16, float16 and float32, not torch.float64"):
        layer(features(B, T, 20, dtype=torch.float64))
