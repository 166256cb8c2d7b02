"""Mixture feed-forward blocks on a grid of primes: every counter and the closed form give the hand formula."""

import pytest
import torch

from headcount.bench.case import ledger_of
from headcount.bench.counters import registry
from headcount.bench.counters.run_context import run_counter
from headcount.models.build import build
from headcount.models.configs.moe_ffn import MixtureFeedForwardConfig

K_E = [(1, 1), (1, 5), (2, 7), (3, 11), (5, 5)]
# F, d_m, T, B: every one at two values
SIZES = [(13, 19, 29, 1), (17, 23, 29, 37), (13, 23, 31, 37), (17, 19, 31, 1)]


@pytest.mark.parametrize("gated", [False, True], ids=["plain", "gated"])
@pytest.mark.parametrize("F, dm, T, B", SIZES)
@pytest.mark.parametrize("K, E", K_E)
def test_counts_match_hand_formula(K, E, F, dm, T, B, gated):
    output_bias = gated and K == 2
    config = MixtureFeedForwardConfig(d_model=dm, d_ff=F, num_experts=E, top_k=K, gated=gated, output_bias=output_bias)
    model, inputs = build(config, device="meta"), {"x": torch.empty(B, T, dm, device="meta")}
    matrices = 3 if gated else 2
    exact = B * T * dm * E + matrices * B * T * K * dm * F
    expected = dict.fromkeys(registry.tools(), exact)
    # this counter adds activations
    expected["ptflops-pytorch"] += B * T * K * F
    assert {
        name: run_counter(registry.counter(name), model, inputs, label="block").macs for name in registry.tools()
    } == expected

    biases = dm * output_bias if gated else E * (F + dm)
    active_biases = dm * output_bias if gated else K * (F + dm)
    form = ledger_of(config, dict(batch_size=B, tgt_len=T))
    assert form.macs == exact
    assert form.params == sum(parameter.numel() for parameter in model.parameters())
    assert form.params == dm * E + matrices * E * dm * F + biases
    assert form.active_params == dm * E + matrices * K * dm * F + active_biases
