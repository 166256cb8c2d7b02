"""JetMoE: losses, norms, tied weights, and the released sizes in integers."""

import torch

from headcount.bench.case import Case
from headcount.models import losses
from headcount.models.build import build
from headcount.models.configs.make import make_config
from headcount.models.configs.presets import preset

SMALL = dict(
    model="jetmoe", attention="moa", d_model=22, d_ff=13, num_layers=2, vocab_size=41, num_experts=5, top_k=2,
    head_dim=12, num_kv_heads=3, gates="selected", output_bias=True, ffn_num_experts=7, ffn_top_k=3,
)  # fmt: skip
TOKENS = torch.randint(41, (2, 11), generator=torch.Generator().manual_seed(0))


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
