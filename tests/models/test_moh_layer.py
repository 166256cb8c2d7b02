"""The balance loss of MoH."""

import pytest
import torch

from headcount.models import losses
from headcount.models.build import build, example_inputs
from headcount.models.configs.moh import MixtureOfHeadAttentionConfig
from tests.cases import features, padding

HEADS = {"two-groups": (7, 3, 2), "no-shared": (5, 0, 3), "nothing-routed": (3, 3, 0), "one-head": (1, 1, 0)}  # h, s, r


def make_layer(name, **fields):
    """Return a float64 layer and its input (B, T, d_m)."""
    h, s, r = HEADS[name]
    sizes = dict(d_model=13, num_heads=h, num_shared_heads=s, top_k=r, head_dim=10)
    config = MixtureOfHeadAttentionConfig(**sizes | fields)
    lengths = {"batch_size": 2, "tgt_len": 7, "src_len": 7}
    return build(config, dtype=torch.float64), example_inputs(config, lengths, dtype=torch.float64)["query"]


def test_balance_loss_matches_equation():
    probs, hidden = features(3, 5, 4).softmax(-1), padding((5, 5, 1), 5)
    indices = probs.topk(2).indices
    tokens = [(b, t) for b in range(3) for t in range(5) if not hidden[b, t]]
    expected = 0.0
    for i in range(4):
        p = sum(probs[b, t, i] for b, t in tokens) / len(tokens)
        f = sum(i in indices[b, t] for b, t in tokens) / len(tokens)
        expected += p * f
    assert losses.head_balance_loss(probs, indices, hidden).item() == pytest.approx(expected.item(), rel=1e-12)


@pytest.mark.parametrize(
    "gates, scale, combined", [("printed", 1, lambda *each: sum(each)), ("released", 4, lambda a, b: (a + b) / 2)]
)
def test_balance_loss_over_layers(gates, scale, combined):
    layer, x = make_layer("two-groups", gates=gates, balance_loss_weight=0.5)
    other, idle = (make_layer(name, gates=gates)[0] for name in ("no-shared", "nothing-routed"))
    for one in (layer, other, idle):
        one.train()(x)
    routing = layer.router.recorded.routing
    loss = 0.5 * scale * losses.head_balance_loss(routing.probs, routing.indices).item()
    assert losses.auxiliary_loss(layer).item() == pytest.approx(loss, rel=1e-12)
    assert losses.auxiliary_loss(torch.nn.ModuleList([layer, idle])).item() == pytest.approx(loss, rel=1e-12)
    total = losses.auxiliary_loss(torch.nn.ModuleList([layer, other, idle])).item()
    assert total == pytest.approx(combined(loss, losses.auxiliary_loss(other).item()), rel=1e-12)
