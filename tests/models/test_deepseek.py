"""DeepSeek's shared experts against their equation, and the tokens that its predictors see."""

import torch
import torch.nn.functional as F

from headcount.models.build import build
from headcount.models.configs.make import make_config
from headcount.models.moe_ffn import MixtureFeedForward
from tests.cases import MODEL_FIELDS, assert_close, features, randomise


@torch.no_grad()
def test_shared_experts_match_equation():
    """3 shared experts of width 13; test_moe_ffn.py has the equation of the routed ones."""
    model = randomise(build(make_config(MODEL_FIELDS["deepseek"]), dtype=torch.float64))
    block, x = model.layers[1].feed_forward, features(2, 7, 22)
    shared, expected = block.shared_experts, MixtureFeedForward.forward(block, x)
    for rows in torch.arange(3 * 13).split(13):
        gate, up = shared.gate_proj.weight[rows].T, shared.up_proj.weight[rows].T
        expected += (F.silu(x @ gate) * (x @ up)) @ shared.down_proj.weight[:, rows].T
    assert_close(block(x), expected)
    assert [hasattr(layer.feed_forward, "router") for layer in model.layers] == [False, True, True]


@torch.no_grad()
def test_predictors_see_the_tokens_before_those_predicted():
    model = randomise(build(make_config(MODEL_FIELDS["deepseek-predictors"]), dtype=torch.float64))
    tokens = torch.randint(41, (2, 13), generator=torch.Generator().manual_seed(5))
    changed = tokens.clone()
    changed[:, 7] = (tokens[:, 7] + 1) % 41
    for k, (one, other) in enumerate(zip(model(tokens), model(changed), strict=True)):
        assert one.shape == (2, 13 - k, 41)
        assert (one != other).any(-1).any(0).tolist() == [i + k >= 7 for i in range(13 - k)]
