"""The recorded routing, and the kernel that torch selects for the fused core."""

import torch
import torch.nn.functional as F

from headcount.bench.latency import routing_replay


def test_backend_is_asked_with_the_call(monkeypatch):
    asked = []

    def answered(*args, **kwargs):
        asked.append((len(args), kwargs))
        return int(torch.nn.attention.SDPBackend.FLASH_ATTENTION)

    monkeypatch.setattr(torch, "_fused_sdp_choice", answered)
    q, k = torch.ones(2, 6, 5, 8), torch.ones(2, 3, 7, 8)
    with routing_replay.RoutingRecorder() as seen:
        F.scaled_dot_product_attention(q, k, k, scale=0.5, enable_gqa=True)
    assert asked == [(3, {"scale": 0.5, "enable_gqa": True})] and list(seen.backends) == ["flash_attention"]


def test_topk_choices_are_recorded():
    module, scores = torch.nn.Linear(5, 5), torch.tensor([[0.0, 7.0, 2.0, 5.0, 3.0]])
    found, chosen, backends = routing_replay.watch(module, lambda: torch.topk(scores, 3).values.tolist())
    assert (found, [one.tolist() for one in chosen], backends) == ([[7.0, 5.0, 3.0]], [[[1, 3, 4]]], [])
