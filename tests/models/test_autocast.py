"""Models under autocast, layers without rotary positions, and expert selection in bfloat16."""

import pytest
import torch

from headcount.models.build import build
from headcount.models.configs.make import make_config
from headcount.models.kernels.selection import runnable
from headcount.models.rotary import rotary_table
from tests.cases import LAYERS, MODEL_FIELDS, make_layer, takes_keys

MOA = dict(attention="moa", d_model=16, head_dim=8, num_experts=32, top_k=7)
ROTARY = ("llama-gqa", "llama-moa", "llama-moh", "llama-mla", "llama-switchhead", "jetmoe", "decoder-parallel")


def assert_near(found, expected):
    """Assert that 75 % of the tokens are equal up to bfloat16 rounding; tokens near a tie may select another expert."""
    found, expected = found.detach().double(), expected.detach().double()
    error = torch.linalg.vector_norm(found - expected, dim=-1) / torch.linalg.vector_norm(expected, dim=-1)
    assert error.quantile(0.75) < 0.05


@pytest.mark.parametrize("name", ROTARY)
def test_models_under_autocast_match_float32(name):
    config = make_config(MODEL_FIELDS[name])
    tokens = torch.randint(41, (2, 7), generator=torch.Generator().manual_seed(3))
    for impl in runnable(config.attention, torch.device("cpu")):
        model = build(config, impl=impl)
        expected = model(tokens)
        with torch.autocast("cpu", torch.bfloat16):
            found = model(tokens)
            decoded = model(tokens, caches=model.make_caches(2, 7))
        found.float().sum().backward()
        assert_near(found, expected)
        assert_near(decoded, expected)


@pytest.mark.parametrize(("config", "impl"), [case for case in LAYERS if takes_keys(case.values[0])])
def test_unsupported_rotary_positions_raise(config, impl):
    layer, inputs = make_layer(config, impl)
    assert layer(**inputs, rotary=None).shape == inputs["query"].shape
    if not config.rotary:
        with pytest.raises(ValueError, match=f"{config.variant} takes no rotary positions"):
            layer(**inputs, rotary=rotary_table(7, 2, 1e4))


ROUTED = {
    "moa-printed": MOA | dict(gates="printed"),
    "moa-released": MOA | dict(gates="released"),
    "moh": dict(attention="moh", d_model=16, num_heads=31, num_shared_heads=3, top_k=7, head_dim=8),
}


@pytest.mark.parametrize("name", ROUTED)
def test_experts_are_selected_by_logits(name):
    """In bfloat16, experts with different logits often have equal probabilities."""
    layer = build(make_config(ROUTED[name]), dtype=torch.bfloat16)
    router = layer.router
    router.record_routing = True
    router(torch.randn(5, 101, 16, generator=torch.Generator().manual_seed(3)).mul(0.3).bfloat16())
    routing = router.recorded
    logits = routing.logits.float()
    lowest = logits.gather(-1, routing.indices).amin(-1, keepdim=True)
    assert torch.equal((logits > lowest).sum(-1) < routing.indices.shape[-1], torch.ones(5, 101, dtype=torch.bool))
    assert torch.equal(routing.probs.gather(-1, routing.indices).amin(-1), routing.probs.topk(7).values.amin(-1))
