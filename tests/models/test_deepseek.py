"""DeepSeek's shared and routed experts against their equations, token by token."""

import torch
import torch.nn.functional as F

from headcount.models.build import build
from headcount.models.configs.make import make_config
from tests.cases import MODEL_FIELDS, assert_close, features, randomise


@torch.no_grad()
def test_shared_and_routed_experts_match_equations():
    """3 shared experts of width 13, and 2 of 5 routed experts with softmax weights."""
    model = randomise(build(make_config(MODEL_FIELDS["deepseek"]), dtype=torch.float64))
    block, x = model.layers[1].feed_forward, features(2, 7, 22)
    shared = block.shared_experts

    def expert(token, gate, up, down):
        return (F.silu(token @ gate) * (token @ up)) @ down

    def expected_output(token):
        out = torch.zeros_like(token)
        for rows in torch.arange(3 * 13).split(13):
            gate, up = shared.gate_proj.weight[rows].T, shared.up_proj.weight[rows].T
            out += expert(token, gate, up, shared.down_proj.weight[:, rows].T)
        logits = block.router.proj.weight @ token
        chosen = logits.argsort(descending=True)[:2]
        for weight, i in zip(logits[chosen].softmax(0), chosen, strict=True):
            out += weight * expert(token, block.gate_proj.weight[i], block.up_proj.weight[i], block.down_proj.weight[i])
        return out

    expected = torch.stack([expected_output(token) for token in x.flatten(0, 1)]).view_as(x)
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
