"""MoH with idle heads, and its balance loss."""

import pytest
import torch

from headcount.models import losses
from headcount.models.build import build, example_inputs
from headcount.models.configs.moh import MixtureOfHeadAttentionConfig

HEADS = {"two-groups": (7, 3, 2), "no-shared": (5, 0, 3), "nothing-routed": (3, 3, 0)}  # h, s, r


def config_of(name, **more):
    h, s, r = HEADS[name]
    sizes = dict(d_model=13, num_heads=h, num_shared_heads=s, top_k=r, head_dim=10)
    return MixtureOfHeadAttentionConfig(**sizes | more)


def made(config):
    """A float64 layer and an input (B, T, d_m)."""
    lengths = {"batch_size": 2, "tgt_len": 7, "src_len": 7}
    return build(config, dtype=torch.float64), example_inputs(config, lengths, dtype=torch.float64)["query"]


def test_balance_loss_printed_and_released():
    logits, chosen = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0)), 2
    probs = logits.double().softmax(-1)
    indices = probs.topk(chosen, dim=-1).indices
    padding = torch.zeros(3, 5, dtype=torch.bool)
    padding[2, 1:] = True
    tokens = [(b, t) for b in range(3) for t in range(5) if not padding[b, t]]
    expected = 0.0
    for i in range(4):
        p = sum(probs[b, t, i] for b, t in tokens) / len(tokens)
        f = sum(i in indices[b, t] for b, t in tokens) / len(tokens)
        expected += p * f
    assert losses.head_balance_loss(probs, indices, padding).item() == pytest.approx(expected.item(), rel=1e-12)

    for gates, scale in (("printed", 1), ("released", 4)):
        layer, x = made(config_of("two-groups", gates=gates, balance_loss_weight=0.5))
        layer.train()(x)
        routing = layer.router.recorded.routing
        one = losses.head_balance_loss(routing.probs, routing.indices)
        assert losses.auxiliary_loss(layer).item() == pytest.approx(0.5 * scale * one.item(), rel=1e-12)
        pair = torch.nn.ModuleList([layer, made(config_of("nothing-routed"))[0]])
        assert losses.auxiliary_loss(pair).item() == pytest.approx(0.5 * scale * one.item(), rel=1e-12)


def test_balance_loss_over_layers():
    for gates, combined in (("printed", lambda a, b: a + b), ("released", lambda a, b: (a + b) / 2)):
        layers = [made(config_of(name, gates=gates))[0].train() for name in ("two-groups", "no-shared")]
        x = made(config_of("two-groups"))[1]
        for layer in layers:
            layer(x)
        each = [losses.auxiliary_loss(layer).item() for layer in layers]
        total = losses.auxiliary_loss(torch.nn.ModuleList(layers)).item()
        assert total == pytest.approx(combined(*each), rel=1e-12)
