"""Routers: noise, precision of losses, and the recorded routing of a forward."""

import copy
import io

import pytest
import torch

from headcount.models import losses
from headcount.models.build import build, example_inputs
from headcount.models.configs.make import make_config
from tests.cases import MODEL_FIELDS, features, padding

MOA = {"attention": "moa", "d_model": 14, "num_experts": 5, "top_k": 3, "head_dim": 7}
MOH = {"attention": "moh", "d_model": 14, "num_heads": 5, "num_shared_heads": 2, "top_k": 1, "head_dim": 7}
ROUTED = {
    "moa": MOA,
    "moa-noisy": MOA | {"noisy": True},
    "moh": MOH,
    "moh-ideal": MOH | {"form": "ideal"},
    "moh-norm": MOH | {"router": "query_norm"},
    "masked-lm": MODEL_FIELDS["masked-moa"],
    "encoder-decoder": MODEL_FIELDS["translation-moa"],
}
every_routed = pytest.mark.parametrize("name", ROUTED)


def test_half_precision_losses_are_float32():
    logits = 2 * features(3, 1009, 11)
    probs, indices = logits.softmax(-1), logits.flip(-1).topk(3).indices
    for loss, x, rest in ((losses.balance_loss, probs, (indices,)), (losses.z_loss, logits, ())):
        value = loss(x.bfloat16(), *rest)
        assert value.dtype == torch.float32
        assert value.item() == pytest.approx(loss(x.bfloat16().double(), *rest).item(), rel=1e-5)


@pytest.mark.parametrize("tokens", [6, 15])
def test_balance_loss_is_1_for_equal_shares(tokens):
    """It is E, the number of experts, where one expert has every token."""
    num_experts = 3
    equal = torch.full((2, tokens, num_experts), 1 / num_experts)
    first = torch.tensor([1.0, 0.0, 0.0]).expand_as(equal)
    in_turn = torch.arange(2 * tokens).view(2, tokens, 1) % num_experts
    assert losses.balance_loss(equal, in_turn).item() == pytest.approx(1)
    assert losses.balance_loss(first, torch.zeros_like(in_turn)).item() == pytest.approx(num_experts)


@pytest.mark.parametrize(
    "gates, scale, combine", [("printed", 1, lambda *each: sum(each)), ("released", 4, lambda a, b: (a + b) / 2)]
)
def test_head_balance_loss_over_layers(gates, scale, combine):
    """Printed losses are summed over layers; released ones are E times as large, and averaged."""
    layers = []
    for h, s, r in ((7, 3, 2), (5, 0, 3), (3, 3, 0)):
        heads = dict(num_heads=h, num_shared_heads=s, top_k=r, gates=gates, balance_loss_weight=0.5)
        layers.append(build(make_config(MOH | heads), dtype=torch.float64).train())
        layers[-1](features(2, 7, 14))
    first, second, idle = layers
    routing = first.router.recorded
    loss = 0.5 * scale * losses.head_balance_loss(routing.probs, routing.indices)
    torch.testing.assert_close(losses.auxiliary_loss(first), loss)
    torch.testing.assert_close(losses.auxiliary_loss(torch.nn.ModuleList([first, idle])), loss)
    total = losses.auxiliary_loss(torch.nn.ModuleList(layers))
    torch.testing.assert_close(total, combine(loss, losses.auxiliary_loss(second)))


def make_model(name):
    """Return a model in training mode, and a function that runs its forward."""
    config = make_config(ROUTED[name])
    inputs = example_inputs(config, {"batch_size": 2, "tgt_len": 5, "src_len": 7, "seq_len": 7})
    inputs.pop("key", None)
    model = build(config).train()
    return model, lambda **masks: model(**inputs, **masks)


def test_tokens_per_expert_of_model():
    model, forward = make_model("encoder-decoder")
    forward(src_padding_mask=padding((7, 3), 7), tgt_padding_mask=padding((4, 5), 5))
    counts = losses.tokens_per_expert(model)
    assert {path: int(count.sum()) for path, count in counts.items()} == {
        **{f"encoder.layers.{i}.self_attn": 3 * 10 for i in range(3)},
        **{f"decoder.layers.{i}.{name}": 3 * 9 for i in range(2) for name in ("self_attn", "cross_attn")},
    }
    assert all(count.shape == (7,) and count.dtype == torch.int64 for count in counts.values())


def test_dense_model_has_no_auxiliary_loss():
    model = build(make_config(MODEL_FIELDS["masked-mha"])).train()
    model(torch.zeros(2, 7, dtype=torch.int64))
    assert losses.auxiliary_loss(model) == 0
    assert losses.tokens_per_expert(model) == {}


def test_inference_records_routing_only_on_request():
    model, forward = make_model("masked-lm")
    model.eval()
    for is_recording in (False, True, False):
        losses.record_routing(model, is_recording)
        forward()
        if is_recording:
            assert all(count.sum() == 3 * 2 * 7 for count in losses.tokens_per_expert(model).values())
            continue
        for function in (losses.auxiliary_loss, losses.tokens_per_expert):
            with pytest.raises(RuntimeError, match=r"^no routing recorded in encoder\.layers\.0\.self_attn; "):
                function(model)


@every_routed
def test_backward_frees_graph_and_keeps_losses(name):
    model, forward = make_model(name)
    y, before = forward(), losses.auxiliary_loss(model)
    (y.square().mean() + before).backward()
    after = losses.auxiliary_loss(model)
    assert before.requires_grad and not after.requires_grad and after == before.detach()
    for _, layer in losses.routed_modules(model):
        assert all(part.grad_fn is None for part in layer.router.recorded[:4])
    # two forwards, then a backward of the first: the second's routing still differentiates
    first = forward()
    forward()
    first.square().mean().backward()
    model.zero_grad()
    losses.auxiliary_loss(model).backward()
    assert any(p.grad is not None and p.grad.any() for p in model.parameters())


@pytest.mark.parametrize("is_trained", [False, True], ids=["forward", "step"])
@every_routed
def test_copied_and_stored_models_hold_only_weights(name, is_trained):
    model, forward = make_model(name)
    loss = forward().square().mean() + losses.auxiliary_loss(model)
    if is_trained:
        loss.backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
    sizes = []
    for one in (model, build(make_config(ROUTED[name])).train()):
        file = io.BytesIO()
        torch.save(one, file)
        sizes.append(len(file.getvalue()))
        file.seek(0)
        for twin in (copy.deepcopy(one), torch.load(file, weights_only=False)):
            assert twin.training
            assert all(torch.equal(v, twin.state_dict()[k]) for k, v in one.state_dict().items())
            with pytest.raises(RuntimeError, match="^no routing recorded"):
                losses.auxiliary_loss(twin)
    assert abs(sizes[0] - sizes[1]) < 128
    # the original keeps its routing
    assert losses.auxiliary_loss(model).isfinite()
