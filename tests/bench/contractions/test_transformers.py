"""Models of transformers as a user builds them: every operator is supported, every count explained."""

import pytest
import torch

from headcount.bench.counters.results import read

transformers = pytest.importorskip("transformers", reason="the optional extra hf is not installed")

B, T, D, F, V, L, H, G = 2, 11, 48, 56, 61, 2, 4, 2
TOKENS = {"input_ids": torch.randint(V, (B, T), generator=torch.Generator().manual_seed(0))}
SIZES = {"hidden_size": D, "num_hidden_layers": L, "num_attention_heads": H, "intermediate_size": F}
ATTENTION = 2 * B * T * T * D
"""By hand: scores and values of one layer."""


def llama():
    config = transformers.LlamaConfig(**SIZES, num_key_value_heads=G, vocab_size=V)
    layer = B * T * (2 * D * D + 2 * D * D * G // H + 3 * D * F) + ATTENTION
    return transformers.LlamaForCausalLM(config), TOKENS, L * layer + B * T * D * V


def jetmoe():
    config = transformers.JetMoeConfig(
        hidden_size=D, num_hidden_layers=L, num_key_value_heads=G, kv_channels=8, intermediate_size=F, vocab_size=V,
        num_local_experts=5, num_experts_per_tok=3,
    )  # fmt: skip
    rows, kv = B * T, G * 8
    # Attention experts: 3 of 5 map to G heads of 7 and back; feed-forward experts have a gate.
    attention = rows * (D * 5 + 2 * D * kv + 3 * 2 * D * kv) + 2 * B * T * T * 3 * kv
    feed = rows * (D * 5 + 3 * 3 * D * F)
    return transformers.JetMoeForCausalLM(config), TOKENS, L * (attention + feed) + rows * D * V


@pytest.mark.parametrize("make", [llama, jetmoe])
def test_transformers_model_is_explained(make):
    model, inputs, macs = make()
    found = read(model, (), inputs, label=make.__name__)
    assert found.headcount.macs == macs
    for cell in found.counters:
        assert cell.explained and not cell.reason, (cell.counter, cell.reason, cell.explanation)
