"""Routed layers and models after a training step: copied, averaged and stored, and what their routers still hold."""

import copy
import io

import pytest
import torch

from headcount.models import losses
from headcount.models.build import build, example_inputs
from headcount.models.configs.make import make_config

LAYERS = {
    "moa": dict(attention="moa", d_model=13, num_experts=5, top_k=2, head_dim=7),
    "moa-noisy": dict(attention="moa", d_model=13, num_experts=5, top_k=2, head_dim=7, noisy=True),
    "moh": dict(attention="moh", d_model=13, num_heads=5, num_shared_heads=2, top_k=1, head_dim=7),
    "moh-ideal": dict(attention="moh", d_model=13, num_heads=5, num_shared_heads=2, top_k=1, head_dim=7, form="ideal"),
    "moh-norm": dict(
        attention="moh", d_model=13, num_heads=5, num_shared_heads=2, top_k=1, head_dim=7, router="query_norm"
    ),
    "masked-lm": dict(
        model="masked_lm", attention="moa", d_model=14, num_experts=5, top_k=2, head_dim=7, d_ff=11, vocab_size=17,
        num_layers=2, max_positions=19,
    ),
}  # fmt: skip


def made(name):
    """A model in training, and a function that runs it forward."""
    config = make_config(LAYERS[name])
    inputs = example_inputs(config, {"batch_size": 2, "tgt_len": 7, "src_len": 7, "seq_len": 7})
    inputs.pop("key", None)
    model = build(config).train()
    return model, lambda: model(**inputs)


def trained(name):
    """A model after a training step, its gradients applied."""
    model, forward = made(name)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    (forward().square().mean() + losses.auxiliary_loss(model)).backward()
    optimiser.step()
    return model, forward


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "step"])
@pytest.mark.parametrize("name", LAYERS)
def test_copy_has_weights_without_routing(name, backward):
    model, forward = trained(name)
    if not backward:
        forward()
    twin = copy.deepcopy(model)
    assert all(torch.equal(v, twin.state_dict()[k]) for k, v in model.state_dict().items())
    with pytest.raises(RuntimeError, match="^no routing recorded"):
        losses.auxiliary_loss(twin)
    # the original keeps its own
    assert losses.auxiliary_loss(model).isfinite()


@pytest.mark.parametrize("name", LAYERS)
def test_stored_model_holds_only_weights(name):
    model, forward = trained(name)
    forward()
    sizes = []
    for kept in (model, build(make_config(LAYERS[name])).train()):
        file = io.BytesIO()
        torch.save(kept, file)
        sizes.append(len(file.getvalue()))
        file.seek(0)
        read = torch.load(file, weights_only=False)
        assert all(torch.equal(v, read.state_dict()[k]) for k, v in kept.state_dict().items())
        assert read.training
    assert abs(sizes[0] - sizes[1]) < 128


@pytest.mark.parametrize("name", LAYERS)
def test_backward_frees_graph_and_keeps_losses(name):
    model, forward = made(name)
    y = forward()
    before = losses.auxiliary_loss(model)
    assert before.requires_grad
    (y.square().mean() + before).backward()
    counts = losses.tokens_per_expert(model)
    after = losses.auxiliary_loss(model)
    assert not after.requires_grad and after == before.detach()
    assert all(count.sum() > 0 for count in counts.values())
    for _, layer in losses.routed_modules(model):
        assert all(part.grad_fn is None for part in layer.router.recorded.routing)


def test_losses_after_backward_of_earlier_forward():
    """Two forwards, then a backward of the first: the second's routing still differentiates."""
    model, forward = made("moa")
    first = forward()
    forward()
    first.square().mean().backward()
    model.zero_grad()
    losses.auxiliary_loss(model).backward()
    assert model.router.proj.weight.grad.abs().sum() > 0
