"""Mixture of attentive experts: the mixture against its formula, and the inputs of each gate."""

import pytest
import torch

from headcount.models.build import build
from headcount.models.configs.mae import MixtureOfAttentiveExpertsConfig
from headcount.models.configs.mha import MultiHeadAttentionConfig
from tests.cases import assert_close, features, randomise

SIZES = dict(d_model=11, num_heads=3, head_dim=5, gate_width=7)


def layer(**fields):
    return randomise(build(MixtureOfAttentiveExpertsConfig(**SIZES, **fields), dtype=torch.float64, seed=3))


def gate_weights(module, mean):
    hidden = torch.tanh(module.gate.fc1.weight @ mean + module.gate.fc1.bias)
    return torch.softmax(module.gate.fc2.weight @ hidden + module.gate.fc2.bias, dim=0)


def head_outputs(module, x, source, mask):
    """Return the projected output of each head for one sequence (T, d_m): (h, T, d_m)."""
    out = []
    for i in range(3):
        rows = slice(5 * i, 5 * i + 5)
        projections = (x, module.q_proj), (source, module.k_proj), (source, module.v_proj)
        q, k, v = (tokens @ p.weight[rows].T + p.bias[rows] for tokens, p in projections)
        scores = (q @ k.T / 5**0.5).masked_fill(mask, -torch.inf)
        out.append(torch.softmax(scores, dim=-1) @ v @ module.out_proj.weight[:, rows].T)
    return torch.stack(out)


@pytest.mark.parametrize("gate", ["sequence", "running", "memory"])
@torch.no_grad()
def test_output_matches_mixture_of_experts(gate):
    module, x, memory = layer(gate=gate), features(2, 7, 11), features(2, 5, 11, seed=2)
    causal, cross = gate == "running", gate == "memory"
    found = module(x, memory if cross else None, causal=causal)
    for b in range(2):
        source = memory[b] if cross else x[b]
        heads = head_outputs(module, x[b], source, torch.ones(7, len(source)).triu(1).bool() & causal)
        # f_i = h / (h - 1) times the sum of all heads but i
        experts = [1.5 * sum(heads[j] for j in range(3) if j != i) for i in range(3)]
        for t in range(7):
            weights = gate_weights(module, (x[b, : t + 1] if causal else source).mean(dim=0))
            mixed = sum(g * f[t] for g, f in zip(weights, experts, strict=True))
            assert_close(found[b, t], mixed + module.out_proj.bias)


def test_non_causal_gate_raises_in_decoding():
    module, x = layer(), features(1, 3, 11)
    reason = "^gate=sequence reads tokens that are not made yet; gate=running or gate=memory decodes$"
    with pytest.raises(ValueError, match=reason):
        module(x, causal=True)
    with pytest.raises(ValueError, match=reason):
        module(x, cache=module.make_cache(1, 3))
    with pytest.raises(ValueError, match="^gate=memory without a key needs what layer.memory_arguments gives$"):
        layer(gate="memory")(x)


def test_multi_head_attention_takes_no_head_weights():
    plain = build(MultiHeadAttentionConfig(d_model=10, num_heads=2))
    with pytest.raises(TypeError, match="MultiHeadAttention takes no head_weights"):
        plain(torch.ones(1, 3, 10), head_weights=torch.ones(1, 1, 2))
