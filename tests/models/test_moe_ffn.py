"""Mixture feed-forward blocks: a loop over tokens, implementations, padding, losses, and models."""

import pytest
import torch
import torch.nn.functional as F

from headcount.models import losses
from headcount.models.build import build, example_inputs
from headcount.models.configs.base import ConfigError
from headcount.models.configs.make import make_config
from headcount.models.configs.moe_ffn import MixtureFeedForwardConfig
from headcount.models.kernels import grouped
from headcount.models.kernels.segments import CollectSegments, make_segments
from headcount.models.moe_ffn import MixtureFeedForward
from tests.cases import MODEL_FIELDS, features, padding, randomise
from tests.models.test_attention_layers import outcome

SIZES = {
    "K3-E7-dm11-F5": dict(d_model=11, d_ff=5, num_experts=7, top_k=3),
    "K3-E7-dm11-F5-gated": dict(d_model=11, d_ff=5, num_experts=7, top_k=3, gated=True),
    "K2-E5-dm13-F17-gated-biased": dict(d_model=13, d_ff=17, num_experts=5, top_k=2, gated=True, output_bias=True),
    "K5-E5-dm7-F3": dict(d_model=7, d_ff=3, num_experts=5, top_k=5),
    "K1-E1-dm7-F3-gated": dict(d_model=7, d_ff=3, num_experts=1, top_k=1, gated=True),
    "K1-E5-dm24-F8": dict(d_model=24, d_ff=8, num_experts=5, top_k=1),
}
WITH_EXPERTS = {name: values for name, values in MODEL_FIELDS.items() if "ffn_num_experts" in values}


@pytest.mark.parametrize("name", SIZES)
def test_block_matches_loop(name):
    config = MixtureFeedForwardConfig(**SIZES[name])
    layer = randomise(build(config, dtype=torch.float64))
    weights, x = dict(layer.named_parameters()), features(2, 7, config.d_model)
    expected = torch.zeros_like(x)
    for b in range(2):
        for t in range(7):
            token = x[b, t]
            logits = weights["router.proj.weight"] @ token
            chosen = logits.argsort(descending=True)[: config.top_k]
            gates = logits[chosen].exp() / logits[chosen].exp().sum()
            for gate, e in zip(gates, chosen, strict=True):
                if config.gated:
                    hidden = F.silu(token @ weights["gate_proj.weight"][e]) * (token @ weights["up_proj.weight"][e])
                    out = hidden @ weights["down_proj.weight"][e]
                else:
                    hidden = (token @ weights["fc1.weight"][e] + weights["fc1.bias"][e]).clamp(min=0)
                    out = hidden @ weights["fc2.weight"][e] + weights["fc2.bias"][e]
                expected[b, t] += gate * out
            if config.output_bias:
                expected[b, t] += weights["output_bias"]
    torch.testing.assert_close(layer(x), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("by_grouped_mm", [False, True], ids=["segments", "grouped-mm"])
@pytest.mark.parametrize("name", SIZES)
def test_grouped_matches_reference(name, by_grouped_mm, monkeypatch):
    """Test the path of CUDA too, on the CPU, where torch has no float64 grouped product."""
    monkeypatch.setattr(grouped, "has_fast_path", lambda device, kind: by_grouped_mm)
    dtype, config = torch.float32 if by_grouped_mm else torch.float64, MixtureFeedForwardConfig(**SIZES[name])
    layers = [randomise(build(config, dtype=dtype, impl=impl)) for impl in ("reference", "grouped")]
    expected, found = (outcome(layer, [features(2, 7, config.d_model)]) for layer in layers)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, **dict(rtol=1e-4, atol=2e-5) if by_grouped_mm else {})


def test_rows_of_a_token_are_summed_in_float32():
    """In bfloat16 1 and each of eight times 2^-9 would be 1 again."""
    rows, one = torch.tensor([[1.0]] + [[2.0**-9]] * 8).bfloat16(), torch.ones(9).bfloat16()
    segments = make_segments(torch.arange(9).view(1, 1, 9), 9)
    assert CollectSegments.apply(rows, one, one.view(9, 1, 1), 1, segments).item() == 1 + 2.0**-6


@pytest.mark.parametrize("case", WITH_EXPERTS)
def test_every_model_supports_moe_ffn(case):
    config = make_config(WITH_EXPERTS[case])
    model, tokens = build(config).train(), {}
    blocks = {path: module for path, module in model.named_modules() if isinstance(module, MixtureFeedForward)}
    for path, block in blocks.items():
        block.register_forward_pre_hook(lambda module, args, path=path: tokens.update({path: args[0][..., 0].numel()}))
    out = model(*example_inputs(config, dict.fromkeys(config.lengths, 7)).values())
    counts = losses.tokens_per_expert(model)
    assert {path: int(counts[path].sum()) for path in blocks} == {path: 2 * n for path, n in tokens.items()}
    (sum(part.square().sum() for part in out) + losses.auxiliary_loss(model)).backward()
    # a model with adaLN-Zero starts with zero gates, behind which no gradient of the output comes
    if config.variant != "dit":
        assert all(p.grad.any() for name, p in model.named_parameters() if "feed_forward.router" in name)


@pytest.mark.parametrize("case", ["masked-mixture-moa", "jetmoe"])
def test_ffn_losses_have_their_weights(case):
    built = build(make_config(MODEL_FIELDS[case] | dict(ffn_balance_loss_weight=0.5, ffn_z_loss_weight=0.25))).train()
    built(torch.arange(14).view(2, 7))
    expected = 0.0
    for path, module in losses.routed_modules(built):
        _, indices, logits, probs, mask = module.router.recorded
        alpha, beta = (0.5, 0.25) if path.endswith("feed_forward") else (0.01, 0.001)
        expected += alpha * losses.balance_loss(probs, indices, mask) + beta * losses.z_loss(logits, mask)
    torch.testing.assert_close(losses.auxiliary_loss(built), expected)


@pytest.mark.parametrize("case", ["translation-mixture", "light-mixture"])
def test_losses_ignore_padding(case):
    built = build(make_config(MODEL_FIELDS[case])).train()
    src, tgt = torch.randint(41, (2, 7)), torch.randint(41, (2, 5))
    built(src, tgt, padding((7, 4), 7), padding((3, 5), 5))
    counts = losses.tokens_per_expert(built)
    assert {path.split(".")[0]: int(n.sum()) for path, n in counts.items()} == {"encoder": 2 * 11, "decoder": 2 * 8}


def test_attention_impl_leaves_ffn_automatic():
    config = make_config(MODEL_FIELDS["llama-mixture"])
    built = build(config, impl="fused")
    built(torch.zeros(1, 7, dtype=torch.int64))
    used = {(layer.self_attn.impl_used, layer.feed_forward.impl_used) for layer in built.layers}
    assert used == {("fused", "grouped")}
    for values, impl in ((config, "loop"), (config.mixture, "fused")):
        with pytest.raises(ConfigError, match=f"^unknown implementation '{impl}' of "):
            build(values, impl=impl)
