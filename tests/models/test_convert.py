"""Dense models converted to MoH: equal tensors, equal outputs with every head active, and reordered heads."""

import copy

import pytest
import torch

import headcount as hc
from headcount.models.build import build, example_inputs
from headcount.models.configs.base import ConfigError
from headcount.models.configs.make import make_config
from headcount.models.configs.presets import preset
from headcount.models.convert import convert, reorder_heads
from tests.cases import randomise

HEADS = dict(attention="mha", num_heads=6, head_dim=10)
GROUPS = HEADS | dict(num_kv_heads=2)
SIZES = dict(d_model=22, d_ff=13, vocab_size=41)
MODELS = {
    "llama": SIZES | HEADS | dict(model="llama", num_layers=2, bias=False),
    "llama-gqa": SIZES | GROUPS | dict(model="llama", num_layers=2, bias=False),
    "dit": dict(model="dit", d_model=28, num_layers=2, patch_size=3, latent_size=9, frequency_width=22, **HEADS),
    "masked_lm": SIZES | GROUPS | dict(model="masked_lm", num_layers=2, max_positions=19),
    "encoder_decoder": SIZES | GROUPS | dict(model="encoder_decoder", num_encoder_layers=2, num_decoder_layers=1),
}


def make_dense(name):
    """Return a dense model without zero tensors, and its inputs."""
    config = make_config(MODELS[name])
    model = randomise(build(config, dtype=torch.float64))
    lengths = dict(config.lengths) | {key: 7 for key in config.lengths if key != "batch_size"}
    return model, example_inputs(config, lengths, dtype=torch.float64).values()


@pytest.mark.parametrize("router", ["query_norm", "linear"])
@pytest.mark.parametrize("shared", [0, 1, 3, 4])
@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_all_heads_active_equals_dense_model(name, shared, router):
    dense, inputs = make_dense(name)
    converted = convert(dense, shared=shared, routed=6 - shared, router=router)
    torch.testing.assert_close(converted(*inputs), dense(*inputs), rtol=1e-10, atol=1e-11)
    with_fewer = convert(dense, shared=shared, routed=5 - shared, router=router)
    assert (with_fewer(*inputs) - dense(*inputs)).abs().max() > 1e-4


@pytest.mark.parametrize("name", MODELS)
def test_conversion_keeps_every_tensor(name):
    dense, _ = make_dense(name)
    converted = convert(dense, shared=2, routed=3)
    before, after = dense.state_dict(), converted.state_dict()
    assert before.keys() == after.keys()
    assert all(tensor.data_ptr() == after[key].data_ptr() for key, tensor in before.items())
    assert [p.requires_grad for p in converted.parameters()] == [p.requires_grad for p in dense.parameters()]
    linear = convert(dense, shared=2, routed=3, router="linear").state_dict()
    routers = linear.keys() - before.keys()
    attentions = sum(key.endswith("_attn.q_proj.weight") for key in before)
    assert len(routers) == 3 * attentions and all(".router." in key for key in routers)
    assert all(linear[key].eq(0).all() for key in routers)


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_reordered_heads_compute_the_same(name):
    dense, inputs = make_dense(name)
    generator = torch.Generator().manual_seed(0)
    paths = [path for path, _ in dense.named_modules() if path.endswith("_attn")]
    scores = {path: torch.randperm(6, generator=generator).tolist() for path in paths}
    reordered = reorder_heads(dense, scores)
    torch.testing.assert_close(reordered(*inputs), dense(*inputs), rtol=1e-10, atol=1e-11)
    moved = [key for key, tensor in dense.state_dict().items() if not torch.equal(tensor, reordered.state_dict()[key])]
    assert any("q_proj" in key for key in moved) and all("_attn." in key for key in moved)
    # all heads shared but one, and that one selected: the same again, through the routed layer
    converted = convert(dense, shared=4, routed=2, scores=scores)
    torch.testing.assert_close(converted(*inputs), dense(*inputs), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize(
    "groups, scores, order",
    [
        (6, [1, 9, 3, 7, 2, 8], [1, 5, 3, 2, 4, 0]),
        # groups 0-2 and 3-5: means 4 and 5
        (2, [1, 9, 2, 4, 6, 5], [4, 5, 3, 1, 2, 0]),
        # equal scores stay in their order
        (2, [5, 5, 5, 5, 5, 5], [0, 1, 2, 3, 4, 5]),
    ],
)
@torch.no_grad()
def test_best_heads_come_first_within_groups(groups, scores, order):
    dense = build(make_config(MODELS["llama"] | dict(num_kv_heads=groups, num_layers=1)))
    reordered = reorder_heads(dense, {"layers.0.self_attn": scores})
    rows, columns = (
        [getattr(model.layers[0].self_attn, name).weight for model in (dense, reordered)]
        for name in ("q_proj", "out_proj")
    )
    for new, old in enumerate(order):
        assert torch.equal(rows[1][10 * new : 10 * new + 10], rows[0][10 * old : 10 * old + 10])
        assert torch.equal(columns[1][:, 10 * new : 10 * new + 10], columns[0][:, 10 * old : 10 * old + 10])


def test_conversion_leaves_mode_and_dense_model():
    dense = build(make_config(MODELS["llama"])).train()
    before = copy.deepcopy(dense.state_dict())
    assert convert(copy.deepcopy(dense), shared=1, routed=1).training
    assert all(torch.equal(tensor, before[name]) for name, tensor in dense.state_dict().items())


def test_config_is_converted_layer_by_layer():
    config = hc.convert(preset("llama3-8b"), shared=16, routed=8)
    assert config == preset("moh-llama3-8b", {"vocab_size": 128256})
    each = hc.convert(make_config(MODELS["llama"]), shared=(2, 3), routed=[4, 1], router="linear")
    assert [(layer.num_shared_heads, layer.top_k, layer.router) for layer in each.layers] == [
        (2, 4, "linear"),
        (3, 1, "linear"),
    ]
    assert all(layer.bias is False and layer.num_kv_heads == 6 for layer in each.layers)


@pytest.mark.parametrize(
    "name, given, words",
    [
        ("llama", dict(shared=4, routed=3), "0..num_heads - num_shared_heads = 0..2, not 3"),
        ("llama", dict(shared=(1, 2, 3), routed=2), "one for each of 2 layers, not 3"),
        ("masked_lm", dict(shared=2, routed=(2, 3)), "one for each of 1 layers, not 2"),
    ],
)
def test_invalid_heads_raise(name, given, words):
    for dense in (make_config(MODELS[name]), build(make_config(MODELS[name]), device="meta")):
        with pytest.raises(ConfigError, match=f"{words}$"):
            convert(dense, **given)


def test_unsupported_conversion_raises():
    with pytest.raises(ConfigError, match="mha .*moa"):
        convert(preset("moa-8K8E128D"), shared=1, routed=1)
    with pytest.raises(ConfigError, match="scores"):
        convert(preset("llm-s"), shared=1, routed=1, scores={})
    dense, _ = make_dense("llama")
    for scores in ({"layers.0.self_attn": range(6)}, {"layers.0.self_attn": [1, 2, 3, 4, 5]}):
        with pytest.raises(ConfigError, match="^scores has .*layers"):
            reorder_heads(dense, scores)
