"""SwitchHead against a loop over tokens, heads and experts written out here, and its limits K = E and E = 1."""

import math

import pytest
import torch

from headcount.models import losses
from headcount.models.build import build, example_inputs
from headcount.models.configs.make import make_config
from tests.models.turned import table, turned

SIZES = dict(attention="switchhead", d_model=13, num_heads=3, head_dim=4, num_experts=7, top_k=2)
CASES = {
    "K2-E7": SIZES,
    "K1-E7": SIZES | dict(top_k=1),
    "K5-E5": SIZES | dict(top_k=5, num_experts=5),
    "K1-E1": SIZES | dict(top_k=1, num_experts=1),
    "one-head": SIZES | dict(num_heads=1, head_dim=2),
}
LENGTHS = {"batch_size": 2, "tgt_len": 7, "src_len": 5}
every_case = pytest.mark.parametrize("case", CASES)
both_arms = pytest.mark.parametrize("arm", ["reference", "fused"])


def made(case, seed=0, **more):
    config = make_config(CASES[case] | more)
    layer = build(config, dtype=torch.float64, seed=seed)
    return layer, *example_inputs(config, LENGTHS, dtype=torch.float64, seed=seed).values()


def naive(layer, query, key=None, visible=lambda b, t, j: True, rotary=False):
    """The equations token by token, head by head and expert by expert; ``visible`` says which keys a query sees."""
    config = layer.config
    h, d, E, K = config.num_heads, config.head_dim, config.num_experts, config.top_k
    keys = query if key is None else key

    def mixed(router, experts, head, routed, x):
        """The sum of the K experts of ``head`` with the highest scores at token ``routed``, each times its gate."""
        scores = [
            1 / (1 + math.exp(-torch.dot(row, routed).item())) for row in router.weight[head * E : (head + 1) * E]
        ]
        chosen = sorted(range(E), key=lambda e: -scores[e])[:K]
        return sum(scores[e] * (x @ experts.weight[head * E + e]) for e in chosen)

    out = torch.zeros_like(query)
    for b in range(len(query)):
        for i in range(h):
            rows = slice(i * d, (i + 1) * d)
            k = [turned(layer.k_proj.weight[rows] @ x, j if rotary else None) for j, x in enumerate(keys[b])]
            v = [mixed(layer.router["value_proj"], layer.v_proj, i, x, x) for x in keys[b]]
            for t in range(query.shape[1]):
                seen = [j for j in range(len(k)) if visible(b, t, j)]
                q = turned(layer.q_proj.weight[rows] @ query[b, t], t if rotary else None)
                weights = torch.softmax(torch.stack([q @ k[j] for j in seen]) / math.sqrt(d), 0)
                head = sum(w * v[j] for w, j in zip(weights, seen, strict=True))
                out[b, t] += mixed(layer.router["out_proj"], layer.out_proj, i, query[b, t], head)
    return out


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


@both_arms
@every_case
@torch.no_grad()
def test_a_layer_is_the_loop_over_tokens_heads_and_experts(case, arm):
    layer, query, key = made(case)
    layer.impl = arm
    close(layer(query, key), naive(layer, query, key))


@both_arms
@every_case
@torch.no_grad()
def test_masks_hide_keys_and_positions_turn_queries_and_keys(case, arm):
    layer, query, _ = made(case)
    layer.impl = arm
    padding = torch.zeros(2, 7, dtype=torch.bool)
    padding[0, 2:4] = True
    rotary = table(0, 7, layer.config.head_dim)
    out = layer(query, causal=True, key_padding_mask=padding, query_padding_mask=padding, rotary=rotary)
    expected = naive(layer, query, visible=lambda b, t, j: j <= t and not padding[b, j], rotary=True)
    close(out, expected.masked_fill(padding[..., None], 0.0))
    assert not out[0, 2:4].any()


def test_the_arms_agree_backward_too():
    results = []
    for arm in ("reference", "fused"):
        layer, query, _ = made("K2-E7")
        layer.impl = arm
        inputs = query.clone().requires_grad_()
        layer(inputs, causal=True).square().sum().backward()
        results.append([inputs.grad, *(p.grad for p in layer.parameters())])
    for one, other in zip(*results, strict=True):
        close(one, other)
        assert one.any()


@pytest.mark.parametrize("sizes", [[1] * 7, [4, 1, 1, 1], [3, 2, 2]], ids=["one-by-one", "prefill", "chunks"])
@both_arms
@torch.no_grad()
def test_decoding_with_a_cache_is_the_causal_pass(arm, sizes):
    layer, query, _ = made("K2-E7")
    layer.impl = arm
    whole = layer(query, causal=True, rotary=table(0, 7, layer.config.head_dim))
    cache, pieces = layer.make_cache(2, 11), []
    for chunk in query.split(sizes, dim=1):
        pieces.append(layer(chunk, rotary=table(cache.length, chunk.shape[1], layer.config.head_dim), cache=cache))
    close(torch.cat(pieces, dim=1), whole)
    assert cache.num_bytes == 2 * 7 * 2 * 3 * 4 * 8


@torch.no_grad()
def test_a_filled_cache_stands_for_the_keys():
    layer, query, key = made("K2-E7")
    cache = layer.fill_cache(key)
    close(torch.cat([layer(query[:, t : t + 1], cache=cache) for t in range(7)], 1), layer(query, key))


@torch.no_grad()
def test_one_expert_with_gates_of_a_half_is_multi_head_attention():
    layer, query, key = made("K1-E1")
    for router in layer.router.values():
        router.weight.zero_()
    dense = build(make_config(dict(attention="mha", d_model=13, num_heads=3, head_dim=4, bias=False)))
    dense = dense.double()
    for name in ("q_proj", "k_proj"):
        dense.get_parameter(f"{name}.weight").copy_(layer.get_parameter(f"{name}.weight"))
    # sigmoid(0) = 1/2, once on the values and once on the outputs
    dense.v_proj.weight.copy_(layer.v_proj.weight.transpose(1, 2).flatten(0, 1) / 2)
    dense.out_proj.weight.copy_(layer.out_proj.weight.flatten(0, 1).t() / 2)
    close(layer(query, key), dense(query, key))


@torch.no_grad()
def test_with_all_experts_chosen_no_order_and_no_competition_matters():
    """K = E is the sum over all experts; another expert's score changes nothing of an expert's own gate."""
    layer, query, _ = made("K5-E5")
    before = layer(query)
    turn = torch.arange(15).view(3, 5).roll(2, dims=1).flatten()
    for router in layer.router.values():
        router.weight.copy_(router.weight[turn])
    for experts in (layer.v_proj, layer.out_proj):
        experts.weight.copy_(experts.weight[turn])
    close(layer(query), before)
    chosen, gates = layer.choose(layer.router["value_proj"], query)
    layer.router["value_proj"].weight[0] = 3.0
    others, changed = layer.choose(layer.router["value_proj"], query)
    by_expert, changed_by_expert = (torch.zeros(2, 7, 15, dtype=torch.float64).scatter(2, at, to)
                                    for at, to in ((chosen, gates), (others, changed)))  # fmt: skip
    assert torch.equal(by_expert[..., 1:], changed_by_expert[..., 1:])
    assert not torch.equal(by_expert[..., 0], changed_by_expert[..., 0])


@torch.no_grad()
def test_values_are_routed_by_the_key_token_and_outputs_by_the_query_token():
    layer, query, key = made("K1-E7")
    routed = {}
    for name, router in layer.router.items():
        router.register_forward_hook(lambda module, inputs, out, name=name: routed.update({name: inputs[0]}))
    layer(query, key)
    assert routed["value_proj"] is key and routed["out_proj"] is query


def test_there_is_no_loss_for_balance():
    layer, query, _ = made("K2-E7")
    layer.train()(query)
    assert losses.auxiliary_loss(layer) == 0


@pytest.mark.parametrize(
    "fields, message",
    [
        (dict(top_k=8), r"top_k must lie in 1\.\.num_experts = 1\.\.7, not 8$"),
        (dict(top_k=0), "top_k must be at least 1, not 0$"),
        (dict(head_dim=0), "head_dim must be at least 1, not 0$"),
        (
            dict(head_dim=None),
            "num_heads must divide d_model, and 3 does not divide 13; choose another num_heads or set head_dim$",
        ),
        (dict(attention_dropout=1.0), r"attention_dropout must lie in \[0, 1\), not 1.0$"),
    ],
    ids=str,
)
def test_sizes_that_cannot_be_built_are_named(fields, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        make_config(SIZES | fields)
    assert make_config(SIZES | dict(num_heads=13, head_dim=None)).head_dim == 1
