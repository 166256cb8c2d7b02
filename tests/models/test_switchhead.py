"""SwitchHead against a loop over tokens, heads and experts."""

import pytest
import torch

from headcount.models.attention import attend, split_heads
from headcount.models.build import build
from headcount.models.configs.switchhead import SwitchHeadConfig
from headcount.models.rotary import rotary_table, rotate
from tests.cases import assert_close, features, padding, randomise

# heads, their width, K and E
SIZES = {"h3-K2-E7": (3, 4, 2, 7), "h2-K5-E5": (2, 4, 5, 5), "h1-K1-E1": (1, 2, 1, 1)}


def mix_experts(layer, name, routed, inputs):
    """Return for each token and head the sum of its K experts, selected and weighed by the scores of ``routed``."""
    experts, out = layer.out_proj if name == "out_proj" else layer.v_proj, []
    for tokens, rows in zip(routed.flatten(0, 1), inputs.flatten(0, 1), strict=True):
        scores = torch.sigmoid(layer.router[name].weight @ tokens).view(layer.config.num_heads, -1)
        for i, row in enumerate(rows):
            chosen = scores[i].argsort(descending=True)[: layer.config.top_k].tolist()
            out.append(sum(scores[i, e] * (row @ experts.weight[i * scores.shape[1] + e]) for e in chosen))
    return torch.stack(out).view(*inputs.shape[:3], -1)


@pytest.mark.parametrize("impl", ["reference", "fused"])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@torch.no_grad()
def test_output_matches_loop(sizes, impl):
    num_heads, head_dim, top_k, num_experts = sizes
    config = SwitchHeadConfig(d_model=13, num_heads=num_heads, head_dim=head_dim, top_k=top_k, num_experts=num_experts)
    layer, x = randomise(build(config, dtype=torch.float64, impl=impl)), features(2, 7, 13)
    rotary = rotary_table(7, head_dim, 1e4, dtype=torch.float64)
    query, key = (rotate(split_heads(proj(x), head_dim), rotary) for proj in (layer.q_proj, layer.k_proj))
    value = mix_experts(layer, "value_proj", x, x[:, :, None].expand(-1, -1, num_heads, -1))
    masks = dict(causal=True, key_padding_mask=padding((5, 7), 7))
    expected = mix_experts(layer, "out_proj", x, attend(query, key, value, **masks)).sum(2)
    assert_close(layer(x, rotary=rotary, **masks), expected)


@torch.no_grad()
def test_experts_are_selected_by_logits():
    """Sigmoids of logits above about 17 are equal in float32."""
    layer = build(SwitchHeadConfig(d_model=3, num_heads=1, num_experts=3, top_k=1, head_dim=2))
    layer.router["out_proj"].weight.copy_(torch.eye(3))
    chosen, gates = layer.choose(layer.router["out_proj"], torch.tensor([[[20.0, 30.0, 25.0]]]))
    assert (chosen.item(), gates.item()) == (1, 1.0)
