"""JetMoE: norms, and the released sizes in integers."""

from headcount.bench.case import Case
from headcount.models.build import build
from headcount.models.configs.make import make_config
from headcount.models.configs.presets import preset
from tests.cases import MODEL_FIELDS


def test_norm_eps():
    model = build(make_config(MODEL_FIELDS["jetmoe"]))
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
