"""Attention experts of several heads, and JetMoE: loops over tokens, gates, norms, tied weights, losses, decoding."""

import pytest
import torch

from headcount.bench.case import Case
from headcount.models import losses
from headcount.models.build import build
from headcount.models.configs.make import make_config
from headcount.models.configs.presets import preset
from headcount.models.rotary import rotary_table

LAYER = dict(attention="moa", d_model=11, num_experts=7, top_k=3, head_dim=12)
SMALL = dict(
    model="jetmoe", attention="moa", d_model=22, d_ff=13, num_layers=2, vocab_size=41, num_experts=5, top_k=2,
    head_dim=12, num_kv_heads=3, gates="selected", output_bias=True, ffn_num_experts=7, ffn_top_k=3,
)  # fmt: skip
TOKENS = torch.randint(41, (2, 11), generator=torch.Generator().manual_seed(0))


def layer_of(**fields):
    """A layer whose biases are not zero."""
    layer = build(make_config(LAYER | fields), dtype=torch.float64)
    if layer.output_bias is not None:
        torch.nn.init.normal_(layer.output_bias, generator=torch.Generator().manual_seed(1))
    return layer


def features(length, seed):
    return torch.randn(2, length, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("turned", [False, True], ids=["plain", "rotary"])
@pytest.mark.parametrize("g", [1, 2, 3], ids=lambda g: f"g{g}")
@torch.no_grad()
def test_expert_heads_read_their_key_value_heads(g, turned):
    layer = layer_of(num_kv_heads=g, gates="selected", output_bias=True)
    x, width = features(5, 3), 12 // g
    rotary = rotary_table(5, width, 10000.0, dtype=torch.float64) if turned else None

    def turn(heads, t):
        """A head at position t, pair by pair."""
        if not turned:
            return heads
        out = heads.clone()
        for i in range(width // 2):
            angle = torch.tensor(t / 10000.0 ** (2 * i / width), dtype=torch.float32).double()
            a, b = heads[i], heads[i + width // 2]
            out[i], out[i + width // 2] = a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()
        return out

    expected = torch.zeros_like(x)
    for b in range(2):
        for t in range(5):
            logits = layer.router.proj.weight @ x[b, t]
            chosen = logits.topk(3).indices
            gates = logits[chosen].exp() / logits[chosen].exp().sum()
            for gate, e in zip(gates, chosen, strict=True):
                query, heads = x[b, t] @ layer.q_proj.weight[e], []
                for j in range(g):
                    own = slice(j * width, (j + 1) * width)
                    keys = [turn(layer.k_proj.weight[own] @ x[b, s], s) for s in range(t + 1)]
                    values = [layer.v_proj.weight[own] @ x[b, s] for s in range(t + 1)]
                    scores = torch.stack([turn(query[own], t) @ key for key in keys]) * width**-0.5
                    heads.append(torch.softmax(scores, 0) @ torch.stack(values))
                expected[b, t] += gate * torch.cat(heads) @ layer.out_proj.weight[e]
            expected[b, t] += layer.output_bias
    # the table of angles is made in float32
    close = dict(rtol=1e-5, atol=1e-6) if turned else dict(rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(layer(x, causal=True, rotary=rotary), expected, **close)


@torch.no_grad()
def test_padded_queries_get_no_output_bias():
    layer = layer_of(num_kv_heads=2, output_bias=True)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    out = layer(features(5, 3), query_padding_mask=padding, key_padding_mask=padding)
    assert out[padding].eq(0).all() and out[~padding].ne(0).all()


@pytest.mark.parametrize("impl", ["reference", "gathered", "grouped", "dense-all", "loop", "auto"])
@torch.no_grad()
def test_decoding_equals_the_full_pass(impl):
    model = build(make_config(SMALL), dtype=torch.float64)
    expected = model(TOKENS)
    decoding = build(make_config(SMALL), dtype=torch.float64, impl=impl)
    caches = decoding.make_caches(2, 11)
    pieces = [decoding(chunk, caches=caches) for chunk in TOKENS.split([5, 1, 1, 4], dim=1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), expected, rtol=1e-10, atol=1e-12)
    assert caches[0].key.shape == (2, 11, 3, 4)


def test_auxiliary_loss_sums_two_routers_per_layer():
    """0.01 L_a + 0.001 L_z, summed: JetMoE's coefficients."""
    model = build(make_config(SMALL)).train()
    model(TOKENS)
    found = losses.auxiliary_loss(model)
    expected, paths = 0.0, []
    for path, module in losses.routed_modules(model):
        paths.append(path)
        logits = module.router.recorded.routing.logits.flatten(0, 1)
        probs = torch.softmax(logits, -1)
        chosen = torch.zeros_like(probs).scatter(1, logits.topk(module.config.top_k).indices, 1.0)
        shares = [part.sum(0) / part.sum() for part in (chosen, probs)]
        expected += 0.01 * logits.shape[1] * (shares[0] * shares[1]).sum()
        expected += 0.001 * logits.logsumexp(-1).square().mean()
    assert paths == [f"layers.{i}.{block}" for i in range(2) for block in ("self_attn", "feed_forward")]
    torch.testing.assert_close(found, expected)
    found.backward()
    assert all(p.grad.abs().sum() > 0 for name, p in model.named_parameters() if "router" in name)


def test_norm_eps_and_tied_embedding():
    model = build(make_config(SMALL))
    assert model.output_proj.weight is model.embedding.weight
    assert {layer.self_attn_norm.eps for layer in model.layers} == {1e-6} and model.norm.eps == 1e-5
    assert {layer.feed_forward_norm.eps for layer in model.layers} == {1e-6}


def test_released_model_in_integers():
    """Parameters as the model's page counts them; multiply-accumulates by hand: D = 16 heads of 128."""
    d, D, F, E, K, V, L = 2048, 2048, 5632, 8, 2, 32000, 24
    attention = d * E + 2 * E * d * D + 2 * d * D + d
    experts = d * E + 3 * E * d * F + d
    assert L * (attention + experts + 2 * d) + d + V * d == 8_522_237_952
    for tokens, macs in ((128, 301_620_789_248), (4096, 12_847_320_924_160)):
        case = Case.of("jetmoe-8b", {}, {"seq_len": tokens})
        per_token = 2 * d * E + 2 * K * d * D + 2 * d * D + 2 * K * tokens * D + 3 * K * d * F
        assert case.ledger.macs == macs == tokens * (L * per_token + d * V)
        assert case.ledger.params == 8_522_237_952
        assert case.ledger.active_params == 2_331_445_248
    assert case.ledger.active_params - V * d == 2_265_909_248
    model = build(preset("jetmoe-8b"), device="meta")
    assert sum(parameter.numel() for parameter in model.parameters()) == 8_522_237_952
    shapes = [cache.key[0, 0].numel() + cache.value[0, 0].numel() for cache in model.make_caches(1, 1)]
    assert sum(shapes) == 98_304
