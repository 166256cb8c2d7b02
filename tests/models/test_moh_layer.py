"""MoH agrees with the equations in numpy in every form and implementation, decodes, and has MHA as its limit."""

from itertools import product

import pytest
import torch

from headcount.models.build import build, example_inputs
from headcount.models.cache import KeyValueCache
from headcount.models.configs.mha import MultiHeadAttentionConfig
from headcount.models.configs.moh import MixtureOfHeadAttentionConfig
from headcount.models.rotary import rotary_table
from tests import equations

LENGTHS = {"batch_size": 2, "tgt_len": 7, "src_len": 7}
HEADS = {  # h, s, r, g
    "h7-s3-r2-g7": (7, 3, 2, 7),
    "h5-s0-r3-g5": (5, 0, 3, 5),
    "h5-s1-r2-g1": (5, 1, 2, 1),
    "h3-s3-r0-g3": (3, 3, 0, 3),
    "h5-s2-r0-g5": (5, 2, 0, 5),
    "h5-s2-r3-g5": (5, 2, 3, 5),
    "h1-s1-r0-g1": (1, 1, 0, 1),
    "h6-s2-r3-g3": (6, 2, 3, 3),
}
GATES = list(product(("linear", "query_norm"), ("released", "printed")))
both_forms = pytest.mark.parametrize("moh_form", ("released", "ideal"))


def values_of(name, **more):
    h, s, r, g = HEADS[name]
    return dict(num_heads=h, num_shared_heads=s, top_k=r, num_kv_heads=g, head_dim=10, bias=True) | more


def make_layer(name, **more):
    """A float64 layer and an input (B, T, d_m)."""
    config = MixtureOfHeadAttentionConfig(d_model=13, **values_of(name, **more))
    return build(config, dtype=torch.float64), example_inputs(config, LENGTHS, dtype=torch.float64)["query"]


@pytest.mark.parametrize("situation", equations.SITUATIONS)
@pytest.mark.parametrize("name", HEADS)
def test_outputs_and_gradients_match_equations(name, situation):
    index = list(HEADS).index(name) + list(equations.SITUATIONS).index(situation)
    router, gates = GATES[index % len(GATES)]
    theta = None if "cross" in equations.SITUATIONS[situation] else (100.0, None)[index // len(GATES) % 2]
    values = values_of(name, router=router, gates=gates, head_dim=4, balance_loss_weight=0.7)
    case = equations.Case(dict(attention="moh", d_model=5, **values), situation, (2, 3, 4), theta)
    value, slope, _ = equations.worst(case, seed=index)
    assert value[0] < equations.EXACT and slope[0] < equations.NEAR, (value, slope)


@pytest.mark.parametrize("is_rotary", [False, True], ids=["plain", "rotary"])
@both_forms
@torch.no_grad()
def test_decoding_matches_causal_forward(moh_form, is_rotary):
    layer, x = make_layer("h6-s2-r3-g3", form=moh_form, router="query_norm")

    def table(start, length):
        return rotary_table(length, 10, 1e4, start=start, dtype=torch.float64) if is_rotary else None

    expected = layer(x, causal=True, rotary=table(0, 7))
    cache = KeyValueCache(2, 7, (3, 10), (3, 10), dtype=torch.float64)
    steps = [layer(x[:, :4], rotary=table(0, 4), cache=cache)]
    steps += [layer(x[:, t : t + 1], rotary=table(t, 1), cache=cache) for t in range(4, 7)]
    torch.testing.assert_close(torch.cat(steps, 1), expected, rtol=0, atol=1e-12)
    assert cache.length == 7
    if not is_rotary:
        # a closed cache gives the keys of another sequence
        torch.testing.assert_close(layer(x[:, :2], cache=layer.fill_cache(x)), layer(x[:, :2], x), rtol=0, atol=1e-12)


def test_rotary_cross_attention_raises():
    layer, x = make_layer("h6-s2-r3-g3")
    with pytest.raises(ValueError, match="^rotary positions are those of the queries: leave key out$"):
        layer(x, x, rotary=rotary_table(7, 10, 1e4))


@both_forms
@pytest.mark.parametrize("name", ["h5-s2-r3-g5", "h3-s3-r0-g3", "h1-s1-r0-g1"])
@torch.no_grad()
def test_equal_gates_give_mha(name, moh_form):
    layer, x = make_layer(name, form=moh_form)
    for parameter in layer.router.parameters():
        parameter.zero_()
    h, *_, g = HEADS[name]
    dense = build(MultiHeadAttentionConfig(d_model=13, num_heads=h, num_kv_heads=g, head_dim=10), dtype=torch.float64)
    dense.load_state_dict({n: p for n, p in layer.state_dict().items() if not n.startswith("router")})
    torch.testing.assert_close(layer(x), dense(x), rtol=0, atol=1e-12)
