"""The timed calls of layers and models: equal to plain autograd, with separate caches and restored inputs."""

import pytest
import torch
from torch import nn

from headcount.bench.latency.case_tensors import CaseTensors
from headcount.bench.latency.implementations import ImplSpec
from headcount.bench.latency.runs import make_run, tensors
from headcount.bench.latency.timing_cases import TimingCase
from headcount.models.configs.make import make_config
from tests.cases import MODEL_FIELDS

SHAPE = dict(seq_len=7, batch_size=3, dtype="float32", device="cpu", routing="natural")
LAYER = make_config(dict(attention="mha", d_model=10, num_heads=2, head_dim=5))
MODEL = make_config(MODEL_FIELDS["masked-mha"])


def make_tiny_run(subject, which, config):
    case = TimingCase(subject, "tiny", which=which, **SHAPE)
    return make_run(case, ImplSpec("tiny", config, "reference", "subject"), CaseTensors(case, config))


def are_equal(found, expected):
    return len(found) == len(expected) and all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


def test_layer_gradients_match_autograd():
    run = make_tiny_run("layer", "both", LAYER)
    for i in (0, 1, 0):
        out = run.module(run.inputs[i])
        expected = torch.autograd.grad(out, [run.inputs[i], *run.module.parameters()], run.shared.gradient)
        assert are_equal(run.call(i), expected)


def test_model_gradients_are_of_cross_entropy():
    run = make_tiny_run("model", "both", MODEL)
    (tokens,) = run.inputs[1]
    loss = nn.functional.cross_entropy(run.module(tokens).transpose(1, 2), tokens)
    found = [g for g in run.call(1) if g is not None]
    expected = [g for g in torch.autograd.grad(loss, list(run.module.parameters()), allow_unused=True) if g is not None]
    assert len(found) == len(expected)
    for pair in zip(found, expected, strict=True):
        torch.testing.assert_close(*pair)


def test_each_decode_call_has_its_own_cache():
    run = make_tiny_run("layer", "decode", LAYER)
    for cache in run.caches:
        cache.key.fill_(0)
    for called in range(2):
        run.call(called)
        assert [bool(cache.key.any()) for cache in run.caches[:3]] == [True, called > 0, False]


@pytest.mark.parametrize("which", ["forward", "both", "decode"])
def test_other_inputs_are_restored_and_outputs_have_no_graph(which):
    run = make_tiny_run("layer", which, LAYER)
    (read,) = run.changeable_inputs(0)
    before = read.detach().clone()
    assert not any(out.requires_grad for out in tensors(run.call(0)))
    with pytest.raises(KeyError), run.other_inputs(0):
        assert torch.equal(read, before.flip(0, 1)) and not torch.equal(read, before)
        raise KeyError
    assert torch.equal(read, before)
