"""Dropout in the blocks of whole models, with F.dropout replaced by zeros."""

import pytest
import torch
import torch.nn.functional as F

from headcount.models.build import build
from headcount.models.configs.make import make_config
from tests.cases import MODEL_FIELDS, features, randomise

MODELS = ("translation-mha", "masked-mha", "light")
EXPERTS = dict(ffn_num_experts=3, ffn_top_k=2)


@pytest.fixture(autouse=True)
def drop_everything(monkeypatch):
    monkeypatch.setattr(F, "dropout", lambda x, probability: torch.zeros_like(x))


def make_layers(name, **fields):
    """Return the first encoder layer of a model, and its first decoder layer if it has one."""
    config = make_config(MODEL_FIELDS[name] | fields)
    model = randomise(build(config, dtype=torch.float64)).train()
    return [stack.layers[0] for stack in (model.encoder, getattr(model, "decoder", None)) if stack is not None]


def make_inputs(layer):
    """Return tokens, and for a decoder layer the encoder output."""
    return (features(2, 7, 22), features(2, 5, 22, seed=2))[: 1 + hasattr(layer, "cross_attn")]


@pytest.mark.parametrize("feed_forward", [{}, EXPERTS], ids=["dense", "mixture"])
@pytest.mark.parametrize("name", MODELS)
def test_layer_with_dropped_branches_is_its_norms(name, feed_forward):
    for layer in make_layers(name, dropout=0.3, **feed_forward):
        norms = [module for path, module in layer.named_children() if path.endswith("_norm")]
        x, *_ = args = make_inputs(layer)
        assert len(norms) == 1 + len(args)
        expected = x
        for norm in norms:
            expected = norm(expected)
        assert torch.equal(layer(*args), expected)
        if hasattr(layer, "step"):
            step = layer.step(x[:, :1], layer.make_caches(args[1], 7))
            torch.testing.assert_close(step, expected[:, :1], rtol=1e-12, atol=1e-12)
        # nothing is dropped in eval mode
        assert not torch.equal(layer.eval()(*args), expected)


@pytest.mark.parametrize("name", MODELS)
def test_no_dropout_by_default(name):
    for layer in make_layers(name):
        args = make_inputs(layer)
        assert torch.equal(layer(*args), layer.eval()(*args))


@pytest.mark.parametrize("name", MODELS)
def test_dropped_hidden_layers_leave_biases(name):
    for layer in make_layers(name, ffn_dropout=0.3):
        assert torch.equal(layer.feed_forward(features(2, 7, 22)), layer.feed_forward.fc2.bias.expand(2, 7, 22))
    for layer in make_layers(name, ffn_dropout=0.3, **EXPERTS):
        torch.nn.init.zeros_(layer.feed_forward.fc2.bias)
        assert not layer.feed_forward(features(2, 7, 22)).any()
