"""MoH against per-token loops written out here, and its two implementations against each other."""

import math
from dataclasses import replace

import pytest
import torch

from headcount.models.build import build, example_inputs
from headcount.models.cache import KeyValueCache
from headcount.models.configs.mha import MultiHeadAttentionConfig
from headcount.models.configs.moh import MixtureOfHeadAttentionConfig
from headcount.models.moh import MixtureOfHeadAttention
from headcount.models.rotary import rotary_table

LENGTHS = {"batch_size": 2, "tgt_len": 7, "src_len": 7}
HEADS = {  # h, s, r, g
    "two-groups": (7, 3, 2, 7),
    "no-shared": (5, 0, 3, 5),
    "one-shared": (5, 1, 2, 1),
    "nothing-routed": (3, 3, 0, 3),
    "idle-heads": (5, 2, 0, 5),
    "all-on": (5, 2, 3, 5),
    "one-head": (1, 1, 0, 1),
    "grouped": (6, 2, 3, 3),
}
FORMS = ("released", "ideal")


def config_of(name, **more):
    h, s, r, g = HEADS[name]
    sizes = dict(d_model=13, num_heads=h, num_shared_heads=s, top_k=r, num_kv_heads=g, head_dim=10, bias=True)
    return MixtureOfHeadAttentionConfig(**sizes | more)


def made(config, seed=0):
    """A float64 layer with random biases too, and an input (B, T, d_m)."""
    layer = build(config, dtype=torch.float64, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.endswith("bias"):
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return layer, example_inputs(config, LENGTHS, dtype=torch.float64, seed=seed)["query"]


def naive_gates(layer, token, query_heads):
    """g_1 … g_h of one token, from Eq. 5-6 or from what the released code does to them."""
    config, router = layer.config, layer.router
    h, s, r, released = config.num_heads, config.num_shared_heads, config.top_k, config.gates == "released"
    gates = [0.0] * h
    if config.router == "query_norm":
        gates[:s] = [1.0] * s
        norms = [math.sqrt(sum(x * x for x in query_heads[i].tolist())) for i in range(s, h)]
        for i in sorted(range(h - s), key=lambda i: -norms[i])[:r]:
            gates[s + i] = 1.0
        return gates

    def softmax(matrix):
        exps = [math.exp(sum(w * x for w, x in zip(row, token.tolist(), strict=True))) for row in matrix.tolist()]
        return [e / sum(exps) for e in exps]

    alpha = softmax(router.group_proj.weight) if s and r else [1.0, 1.0]
    if s and r and released:
        alpha = [2 * a for a in alpha]
    shared = softmax(router.shared_proj.weight) if s > 1 else [1.0] * s
    for i in range(s):
        gates[i] = alpha[0] * shared[i] * (s if released else 1)
    if r:
        probs = softmax(router.routed_proj.weight)
        chosen = sorted(range(h - s), key=lambda i: -probs[i])[:r]
        total = sum(probs[i] for i in chosen)
        for i in chosen:
            gates[s + i] = alpha[1] * (probs[i] / total * r if released else probs[i])
    return gates


def naive(layer, x, visible=lambda b, t, j: True):
    """sum_i g_i H^i W_O^i + b, token by token and head by head; ``visible`` says which keys a query sees."""
    config = layer.config
    h, d, group = config.num_heads, config.head_dim, config.num_heads // config.num_kv_heads
    out = torch.zeros_like(x)
    for b in range(x.shape[0]):
        keys = [layer.k_proj(x[b, j]).view(-1, d) for j in range(x.shape[1])]
        values = [layer.v_proj(x[b, j]).view(-1, d) for j in range(x.shape[1])]
        for t in range(x.shape[1]):
            queries = (layer.q_proj.weight @ x[b, t] + layer.q_proj.bias).view(h, d)
            gates = naive_gates(layer, x[b, t], queries)
            seen = [j for j in range(x.shape[1]) if visible(b, t, j)]
            for i in range(h):
                scores = torch.stack([queries[i] @ keys[j][i // group] for j in seen]) / math.sqrt(d)
                head = sum(w * values[j][i // group] for w, j in zip(torch.softmax(scores, 0), seen, strict=True))
                out[b, t] += gates[i] * (layer.out_proj.weight[:, i * d : (i + 1) * d] @ head)
            out[b, t] += layer.out_proj.bias
    return out


@pytest.mark.parametrize("moh_form", FORMS)
@pytest.mark.parametrize("gates", ["released", "printed"])
@pytest.mark.parametrize("name", HEADS)
@torch.no_grad()
def test_layer_is_the_loop_over_tokens_and_heads(name, gates, moh_form):
    layer, x = made(config_of(name, gates=gates, form=moh_form))
    torch.testing.assert_close(layer(x), naive(layer, x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("moh_form", FORMS)
@pytest.mark.parametrize("name", ["two-groups", "no-shared", "grouped", "all-on"])
@torch.no_grad()
def test_query_norm_layer_is_the_loop(name, moh_form):
    layer, x = made(config_of(name, router="query_norm", form=moh_form))
    assert not list(layer.router.parameters())
    torch.testing.assert_close(layer(x), naive(layer, x), rtol=0, atol=1e-12)


def both(config, seed=0):
    released, x = made(replace(config, form="released"), seed)
    ideal, _ = made(replace(config, form="ideal"), seed)
    return released, ideal, x


@pytest.mark.parametrize("router", ["linear", "query_norm"])
@pytest.mark.parametrize("gates", ["released", "printed"])
@pytest.mark.parametrize("name", ["two-groups", "no-shared", "one-shared", "nothing-routed", "grouped"])
def test_dense_and_sparse_agree_forward_and_backward(name, gates, router, monkeypatch):
    monkeypatch.setattr("headcount.models.experts.GATHERED_BYTES", 5_000)
    released, ideal, x = both(config_of(name, gates=gates, router=router))
    # the gradient of Eq. 10 through unselected heads is the released form's alone (test_moh_routing.py)
    selected_only = lambda *args, every: MixtureOfHeadAttention.route(released, *args)  # noqa: E731
    monkeypatch.setattr(released, "route", selected_only)
    rotary = rotary_table(7, 10, 1e4, dtype=torch.float64)
    padding = torch.zeros(2, 7, dtype=torch.bool)
    padding[1, 5:] = True
    weights = torch.randn(2, 7, 13, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    results = []
    for layer in (released, ideal):
        inputs = x.clone().requires_grad_()
        out = layer(inputs, causal=True, key_padding_mask=padding, query_padding_mask=padding, rotary=rotary)
        (out * weights).sum().backward()
        results.append([out, inputs.grad, *(p.grad for p in layer.parameters())])
    assert all(torch.equal(row, torch.zeros(13, dtype=torch.float64)) for row in results[0][0][1, 5:])
    for one, other in zip(*results, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("moh_form", FORMS)
@torch.no_grad()
def test_masks_hide_keys(moh_form):
    layer, x = made(config_of("grouped", form=moh_form))
    padding = torch.zeros(2, 7, dtype=torch.bool)
    padding[0, 2:4] = True
    out = layer(x, causal=True, key_padding_mask=padding)
    expected = naive(layer, x, lambda b, t, j: j <= t and not padding[b, j])
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("rotated", [False, True], ids=["plain", "rotary"])
@pytest.mark.parametrize("moh_form", FORMS)
@torch.no_grad()
def test_decoding_with_a_cache_is_the_causal_forward(moh_form, rotated):
    layer, x = made(config_of("grouped", form=moh_form, router="query_norm"))

    def table(start, length):
        return rotary_table(length, 10, 1e4, start=start, dtype=torch.float64) if rotated else None

    whole = layer(x, causal=True, rotary=table(0, 7))
    cache = KeyValueCache(2, 7, (3, 10), (3, 10), dtype=torch.float64)
    steps = [layer(x[:, :4], rotary=table(0, 4), cache=cache)]
    steps += [layer(x[:, t : t + 1], rotary=table(t, 1), cache=cache) for t in range(4, 7)]
    torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=0, atol=1e-12)
    assert cache.length == 7
    if not rotated:
        # a closed cache gives the keys of another sequence
        torch.testing.assert_close(layer(x[:, :2], cache=layer.fill_cache(x)), layer(x[:, :2], x), rtol=0, atol=1e-12)


def test_rotary_positions_are_for_self_attention():
    layer, x = made(config_of("grouped"))
    with pytest.raises(ValueError, match="^rotary positions are those of the queries: leave key out$"):
        layer(x, x, rotary=rotary_table(7, 10, 1e4))


def uniform(layer):
    with torch.no_grad():
        for parameter in layer.router.parameters():
            parameter.zero_()
    return layer


@pytest.mark.parametrize("moh_form", FORMS)
@pytest.mark.parametrize("name", ["all-on", "nothing-routed", "one-head"])
@torch.no_grad()
def test_all_heads_on_with_gates_1_is_multi_head_attention(name, moh_form):
    config = config_of(name, form=moh_form)
    layer, x = made(config)
    uniform(layer)
    sizes = dict(d_model=13, num_heads=config.num_heads, num_kv_heads=config.num_kv_heads, head_dim=10)
    dense = build(MultiHeadAttentionConfig(**sizes), dtype=torch.float64)
    dense.load_state_dict({n: p for n, p in layer.state_dict().items() if not n.startswith("router")})
    concatenated = dense(x)
    torch.testing.assert_close(layer(x), concatenated, rtol=0, atol=1e-12)
    # summation form: each head through its own rows of the output projection
    summed = dense.out_proj.bias.expand_as(x).clone()
    for i in range(config.num_heads):
        alone = build(MultiHeadAttentionConfig(**sizes | {"bias": False}), dtype=torch.float64)
        alone.load_state_dict({n: p for n, p in dense.state_dict().items() if "weight" in n})
        rows = torch.zeros_like(alone.out_proj.weight)
        rows[:, i * 10 : (i + 1) * 10] = alone.out_proj.weight[:, i * 10 : (i + 1) * 10]
        alone.out_proj.weight.copy_(rows)
        biased = replace(alone.config, bias=True)
        part = build(biased, dtype=torch.float64)
        part.load_state_dict(dense.state_dict() | {"out_proj.weight": rows, "out_proj.bias": torch.zeros(13)})
        summed += part(x)
    torch.testing.assert_close(layer(x), summed, rtol=0, atol=1e-12)
