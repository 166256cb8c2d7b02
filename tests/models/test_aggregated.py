"""Aggregated attention against the sums of its definition, token by token in float64, with and without routing."""

from dataclasses import replace
from math import exp, log, log2

import pytest
import torch

from headcount.models.build import build, example_inputs
from headcount.models.configs.make import make_config
from headcount.models.losses import auxiliary_loss, head_balance_loss
from tests.cases import randomise
from tests.models.test_attention_layers import compare

DENSE = dict(attention="aggregated", d_model=15, num_heads=3, side=6, pool_ratio=2, position_width=7)
MOH = DENSE | dict(attention="moh_aggregated", num_shared_heads=1, top_k=1)
LAYERS = {
    "pooled": DENSE,
    "pooled-by-3": DENSE | dict(pool_ratio=3),
    "all-tokens": DENSE | dict(pool_ratio=1),
    "fine-tuned": DENSE | dict(pretrained_side=4),
    "moh-s1": MOH,
    "moh-s2": MOH | dict(num_shared_heads=2),
    "moh-s0": MOH | dict(num_shared_heads=0, top_k=2),
    "moh-r0": MOH | dict(num_shared_heads=3, top_k=0),
    "moh-all-tokens": MOH | dict(pool_ratio=1, top_k=2),
    "moh-one-head": MOH | dict(d_model=5, num_heads=1, top_k=0),
}


def make_layer(values, batch_size=2):
    """Return a layer with random parameters, and its input."""
    config = make_config(values)
    layer = randomise(build(config, dtype=torch.float64), 0.5)
    return layer, example_inputs(config, {"batch_size": batch_size}, dtype=torch.float64)["query"]


def bias_at(layer, config, row, column, block):
    """Return the position bias of each head for a token and a pooled token, or a token without pooling."""
    ratio, pair = config.pool_ratio, []
    blocks = config.side // ratio
    for place, at in ((row, block // blocks), (column, block % blocks)):
        distance = 8 * (place - (at * ratio + (ratio - 1) / 2)) / ((config.pretrained_side or config.side) - 1)
        pair.append((distance > 0) - (distance < 0) and log2(abs(distance) + 1) / 3 * (1 if distance > 0 else -1))
    net = layer.position
    hidden = torch.relu(net.fc1.weight @ torch.tensor(pair, dtype=torch.float64) + net.fc1.bias)
    return net.fc2.weight @ hidden + net.fc2.bias


def unit(vector):
    return vector / vector.norm()


def pooled_tokens(layer, config, x):
    ratio, side = config.pool_ratio, config.side
    hidden = torch.nn.functional.gelu(x @ layer.pool_proj.weight.T + layer.pool_proj.bias)
    means = []
    for top in range(0, side, ratio):
        for left in range(0, side, ratio):
            inside = [hidden[(top + i) * side + left + j] for i in range(ratio) for j in range(ratio)]
            means.append(sum(inside) / ratio**2)
    means = torch.stack(means)
    centred = means - means.mean(dim=1, keepdim=True)
    normed = centred / (centred.square().mean(dim=1, keepdim=True) + 1e-5).sqrt()
    return normed * layer.pool_norm.weight + layer.pool_norm.bias


def head_output(layer, config, x, t, i):
    """Return the output of head i at token t of one image, from the definition."""
    d, side = config.head_dim, config.side
    own = slice(i * d, (i + 1) * d)

    def key(token):
        return unit((layer.k_proj.weight @ token + layer.k_proj.bias)[own])

    def value(token):
        return (layer.v_proj.weight @ token + layer.v_proj.bias)[own]

    row, column = divmod(t, side)
    direction = unit((layer.q_proj.weight @ x[t] + layer.q_proj.bias)[own])
    temperature = log(1 + exp(layer.temperature[i]))
    if config.pool_ratio == 1:
        query = (direction + layer.query_embedding[i]) * temperature * log(side**2)
        scores = torch.stack([query @ key(x[j]) + bias_at(layer, config, row, column, j)[i] for j in range(side**2)])
        return sum(a * value(x[j]) for j, a in enumerate(torch.softmax(scores, dim=0)))
    pooled = pooled_tokens(layer, config, x)
    window = [(w, row + w // 3 - 1, column + w % 3 - 1) for w in range(9)]
    window = [(w, a * side + b) for w, a, b in window if 0 <= a < side and 0 <= b < side]
    query = (direction + layer.query_embedding[i]) * temperature * log(len(window) + len(pooled))
    near = [query @ key(x[j]) + layer.window_bias[i, w] for w, j in window]
    far = [query @ key(token) + bias_at(layer, config, row, column, j)[i] for j, token in enumerate(pooled)]
    weights = torch.softmax(torch.stack(near + far), dim=0)
    out = sum(a * value(token) for a, token in zip(weights[len(near) :], pooled, strict=True))
    for a, (w, j) in zip(weights, window, strict=False):
        out = out + (a + direction @ layer.window_tokens[i, :, w] + layer.window_weight[i, w]) * value(x[j])
    return out


def head_gates(layer, config, token):
    """Return the gate of each head, as in the released code."""
    if config.variant == "aggregated":
        return [1.0] * config.num_heads
    s, r, router = config.num_shared_heads, config.top_k, layer.router
    shared = [1.0] * s if s < 2 else list(torch.softmax(router.shared_proj.weight @ token, dim=0) * s)
    routed = [0.0] * (config.num_heads - s)
    if r:
        probs = torch.softmax(router.routed_proj.weight @ token, dim=0)
        chosen = sorted(range(len(routed)), key=lambda i: -probs[i])[:r]
        for i in chosen:
            routed[i] = probs[i] / sum(probs[j] for j in chosen) * r
    groups = (1.0, 1.0) if not (s and r) else torch.softmax(router.group_proj.weight @ token, dim=0) * 2
    return [groups[0] * gate for gate in shared] + [groups[1] * gate for gate in routed]


@pytest.mark.parametrize("name", LAYERS)
def test_layer_matches_definition(name):
    layer, x = make_layer(LAYERS[name])
    config, side = layer.config, layer.config.side
    # corners, an edge and the inside, of both images
    places = [(0, 0), (0, 3), (1, side + 2), (1, side**2 - 1), (1, 2 * side - 1)]
    with torch.no_grad():
        out = layer(x)
        for b, t in places:
            heads = [
                gate * head_output(layer, config, x[b], t, i) if gate else torch.zeros(config.head_dim)
                for i, gate in enumerate(head_gates(layer, config, x[b, t]))
            ]
            expected = layer.out_proj.weight @ torch.cat(heads).to(x.dtype) + layer.out_proj.bias
            torch.testing.assert_close(out[b, t], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in LAYERS if name.startswith("moh")])
def test_ideal_form_equals_released_form(name):
    layer, x = make_layer(LAYERS[name])
    ideal = build(replace(layer.config, form="ideal"), dtype=torch.float64)
    ideal.load_state_dict(layer.state_dict(), strict=True)
    compare(ideal, layer, [x])


def test_balance_loss_equals_moh():
    layer, x = make_layer(MOH | dict(num_heads=5, d_model=15, top_k=2))
    layer.train()(x)
    routing = layer.router.recorded
    expected = 4 * 0.01 * head_balance_loss(routing.probs, routing.indices)
    torch.testing.assert_close(auxiliary_loss(layer), expected)


def test_initial_values_match_paper():
    layer = build(make_config(DENSE))
    torch.testing.assert_close(torch.nn.functional.softplus(layer.temperature), torch.full((3,), 1 / 0.24))
    assert not layer.window_weight.any()
    assert 0.01 < layer.window_tokens.std() < 0.03
