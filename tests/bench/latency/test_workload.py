"""Routers are steered so that tokens reach experts in the stated distribution."""

import pytest
import torch

from headcount.bench.latency import case_tensors, timing_cases
from headcount.models.build import build
from headcount.models.configs.make import make_config
from headcount.models.losses import record_routing, tokens_per_expert

E, K, N, DM = 11, 3, 110, 13


def test_balanced_and_one_expert_selection():
    assert case_tensors.select_experts("balanced", 5, 7, 3, seed=7).flatten().tolist() == [*range(7), *range(7), 0]
    one = case_tensors.select_experts("one-expert", 5, 6, 3, seed=7)
    assert one[:, 0].tolist() == [0] * 5
    assert one[:, 1:].flatten().tolist() == [*range(1, 6)] * 2
    assert case_tensors.select_experts("one-expert", 3, 1, 1, seed=7).tolist() == [[0]] * 3
    assert case_tensors.select_experts("one-expert", 3, 2, 2, seed=7).tolist() == [[0, 1]] * 3


def test_expert_shares():
    shares = case_tensors.expert_shares("paper", 32)
    assert sum(shares) == pytest.approx(1)
    assert 0.05 < shares[0] < 0.06 and shares[-1] == pytest.approx(shares[0] / 5.5)
    assert case_tensors.expert_shares("paper", 2) == pytest.approx([5.5 / 6.5, 1 / 6.5])
    assert case_tensors.expert_shares("balanced", 8) == case_tensors.expert_shares("one-expert", 8) == [1 / 8] * 8
    zipf = case_tensors.expert_shares("zipf", 4)
    assert zipf == pytest.approx([12 / 25, 6 / 25, 4 / 25, 3 / 25])


@pytest.mark.parametrize("routing", ["paper", "zipf"])
@pytest.mark.parametrize("num_experts, top_k", [(2, 1), (5, 3), (11, 7), (11, 10), (32, 16), (7, 7), (1, 1)])
def test_inclusion_probabilities(routing, num_experts, top_k):
    shares = case_tensors.expert_shares(routing, num_experts)
    found = case_tensors.inclusion_probs(shares, top_k)
    assert sum(found) == pytest.approx(top_k, rel=1e-12)
    assert all(0 < p <= 1 for p in found)
    free = [p / share for p, share in zip(found, shares, strict=True) if p < 1]
    assert not free or max(free) == pytest.approx(min(free), rel=1e-12)
    chosen = case_tensors.select_experts(routing, 997, num_experts, top_k, seed=7)
    assert all(len(set(row)) == top_k for row in chosen.tolist())
    counts = torch.bincount(chosen.flatten(), minlength=num_experts)
    assert all(abs(int(n) - 997 * p) <= 2 for n, p in zip(counts, found, strict=True))


@pytest.mark.parametrize("routing", timing_cases.ROUTINGS)
@pytest.mark.parametrize("k", [1, 3, 11])
def test_steered_layer_follows_routing(routing, k):
    config = make_config(dict(attention="moa", d_model=DM, num_experts=E, top_k=k, head_dim=5))
    layer = build(config)
    case_tensors.steer(layer)
    record_routing(layer)
    chosen = case_tensors.select_experts(routing, N, E, k, seed=7)
    layer(case_tensors.route_inputs(case_tensors.draw_features(2, N // 2, DM, "cpu"), chosen, E))
    counts = tokens_per_expert(layer)[""]
    assert counts.tolist() == torch.bincount(chosen.flatten(), minlength=E).tolist()
    picked = layer.router.recorded.indices.reshape(N, k)
    assert torch.equal(picked.sort().values, chosen.sort().values)
