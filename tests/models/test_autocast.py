"""Autocast, rotary positions and routing in low precision, over every layer and whole models that have them."""

import pytest
import torch

from headcount.models.build import build
from headcount.models.configs.make import make_config
from headcount.models.rotary import rotary_table
from tests.cases import LAYERS, MODEL_FIELDS, made, takes_keys

MOA = dict(attention="moa", d_model=16, num_experts=5, top_k=2, head_dim=8)


def assert_near(found, expected):
    """Assert equality up to bfloat16's rounding, but for a few tokens at a tie, which may take another expert."""
    found, expected = found.detach().double(), expected.detach().double()
    error = torch.linalg.vector_norm(found - expected, dim=-1) / torch.linalg.vector_norm(expected, dim=-1)
    assert error.quantile(0.75) < 0.05


@pytest.mark.parametrize("cached", [False, True], ids=["whole", "cache"])
@pytest.mark.parametrize(("config", "impl"), [case for case in LAYERS if case.values[0].rotary])
def test_autocast_with_rotary_positions(config, impl, cached):
    layer, inputs = made(config, impl)
    if cached and not impl.masks:
        pytest.skip(f"{impl.name} takes no mask, and a cache needs one")
    layer, x = layer.float(), inputs["query"].float()

    def run():
        # the table is float32 under autocast, as the embedding's output is
        rotary = rotary_table(x.shape[1], config.rotary_width, 1e4)
        own = {"cache": layer.make_cache(*x.shape[:2])} if cached else {"causal": impl.masks}
        return layer(x, rotary=rotary, **own)

    expected = run()
    with torch.autocast("cpu", torch.bfloat16):
        found = run()
    assert_near(found, expected)


@pytest.mark.parametrize("name", ["jetmoe", "llama-moa", "llama-gqa"])
def test_autocast_of_whole_models(name):
    config = make_config(MODEL_FIELDS[name])
    tokens = torch.randint(41, (2, 7), generator=torch.Generator().manual_seed(3))
    for impl in sorted({impl.name for impl in config.layers[0].implementations if impl.package is None}):
        model = build(config, impl=impl)
        expected = model(tokens)
        with torch.autocast("cpu", torch.bfloat16):
            found = model(tokens)
        found.float().sum().backward()
        assert_near(found, expected)


@pytest.mark.parametrize(("config", "impl"), [case for case in LAYERS if takes_keys(case.values[0])])
def test_layers_without_rotary_positions_refuse_a_table(config, impl):
    layer, inputs = made(config, impl)
    assert layer(**inputs, rotary=None).shape == inputs["query"].shape
    if not config.rotary:
        with pytest.raises(ValueError, match=f"{config.variant} takes no rotary positions"):
            layer(**inputs, rotary=rotary_table(7, 2, 1e4))


ROUTED = {
    "moa-printed": MOA | dict(gates="printed", num_experts=32, top_k=7),
    "moa-released": MOA | dict(gates="released", num_experts=32, top_k=7),
    "moh": dict(attention="moh", d_model=16, num_heads=31, num_shared_heads=3, top_k=7, head_dim=8),
}


@pytest.mark.parametrize("name", ROUTED)
def test_experts_are_selected_by_logits(name):
    """In bfloat16 many probabilities are equal whose logits differ."""
    layer = build(make_config(ROUTED[name]), dtype=torch.bfloat16)
    router = layer.router
    router.record_routing = True
    router(torch.randn(5, 101, 16, generator=torch.Generator().manual_seed(3)).mul(0.3).bfloat16())
    routing = router.recorded.routing
    logits = routing.logits.float()
    lowest = logits.gather(-1, routing.indices).amin(-1, keepdim=True)
    assert torch.equal((logits > lowest).sum(-1) < routing.indices.shape[-1], torch.ones(5, 101, dtype=torch.bool))
    assert torch.equal(routing.probs.gather(-1, routing.indices).amin(-1), routing.probs.topk(7).values.amin(-1))


def test_switchhead_selects_experts_by_logits():
    """Sigmoids of logits above about 17 are equal in float32."""
    layer = build(make_config(dict(attention="switchhead", d_model=3, num_heads=1, num_experts=3, top_k=1, head_dim=2)))
    with torch.no_grad():
        layer.router["out_proj"].weight.copy_(torch.eye(3))
    chosen, gates = layer.choose(layer.router["out_proj"], torch.tensor([[[20.0, 30.0, 25.0]]]))
    assert (chosen.item(), gates.detach().item()) == (1, 1.0)
