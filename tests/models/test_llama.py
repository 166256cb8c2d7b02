"""The language model against its equations, and decoding with caches."""

import math

import pytest
import torch

from headcount.models import losses
from headcount.models.build import build, example_inputs
from headcount.models.configs.make import make_config

SIZES = dict(model="llama", d_model=15, d_ff=17, num_layers=3, vocab_size=19)
MHA = dict(attention="mha", num_heads=6, num_kv_heads=2, head_dim=4, bias=False)
MOH = dict(attention="moh", num_heads=6, num_shared_heads=2, top_k=3, num_kv_heads=2, head_dim=4)
NORM = MOH | dict(router="query_norm")
UNEVEN = MOH | dict(num_heads=(6, 4, 6), num_shared_heads=(2, 1, 6), top_k=(3, 2, 0))
CASES = {
    "mha": SIZES | MHA, "moh": SIZES | MOH, "query-norm": SIZES | NORM, "uneven": SIZES | UNEVEN,
}  # fmt: skip
every_case = pytest.mark.parametrize("case", CASES)


def made(values, length=7):
    config = make_config(values)
    inputs = example_inputs(config, {"batch_size": 2, "seq_len": length})
    return build(config, dtype=torch.float64), inputs["tokens"]


def rms_norm(x, weight):
    return x / torch.sqrt((x**2).mean(-1, keepdim=True) + 1e-5) * weight


@torch.no_grad()
def test_llama_matches_equations():
    model, tokens = made(CASES["mha"])
    for parameter in model.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel())))
    x = model.embedding.weight[tokens]
    for layer in model.layers:
        a, f = layer.self_attn, layer.feed_forward
        y = rms_norm(x, layer.self_attn_norm.weight)

        def turned(z, heads):
            z = z.view(2, 7, heads, 4).clone()
            for t in range(7):
                for i in range(2):
                    angle = t * 500000.0 ** (-2 * i / 4)
                    one, two = z[:, t, :, i].clone(), z[:, t, :, i + 2].clone()
                    z[:, t, :, i] = one * math.cos(angle) - two * math.sin(angle)
                    z[:, t, :, i + 2] = two * math.cos(angle) + one * math.sin(angle)
            return z

        q, k = turned(y @ a.q_proj.weight.t(), 6), turned(y @ a.k_proj.weight.t(), 2)
        v = (y @ a.v_proj.weight.t()).view(2, 7, 2, 4)
        k, v = k.repeat_interleave(3, 2), v.repeat_interleave(3, 2)
        scores = torch.einsum("bthd,bshd->bhts", q, k) / 2
        scores = scores.masked_fill(torch.ones(7, 7, dtype=torch.bool).triu(1), -math.inf)
        heads = torch.einsum("bhts,bshd->bthd", scores.softmax(-1), v)
        x = x + heads.flatten(2) @ a.out_proj.weight.t()
        y = rms_norm(x, layer.feed_forward_norm.weight)
        gate, up = y @ f.gate_proj.weight.t(), y @ f.up_proj.weight.t()
        x = x + (gate * torch.sigmoid(gate) * up) @ f.down_proj.weight.t()
    expected = rms_norm(x, model.norm.weight) @ model.output_proj.weight.t()
    # the rotary table is made in float32
    torch.testing.assert_close(model(tokens), expected, rtol=1e-4, atol=1e-4)


@every_case
@torch.no_grad()
def test_decoding_matches_forward(case):
    model, tokens = made(CASES[case])
    caches = model.make_caches(2, 7)
    steps = [model(tokens[:, :3], caches=caches)] + [model(tokens[:, t : t + 1], caches=caches) for t in range(3, 7)]
    torch.testing.assert_close(torch.cat(steps, 1), model(tokens), rtol=0, atol=1e-10)
    with pytest.raises(ValueError, match="^the cache has room for 7 tokens, not 8$"):
        model(tokens[:, :1], caches=caches)
    with pytest.raises(ValueError, match="^padding_mask is for whole sequences: with caches every token is real$"):
        model(tokens, torch.zeros(2, 7, dtype=torch.bool), caches)


def test_only_routed_layers_are_recorded():
    model, tokens = made(CASES["uneven"])
    losses.record_routing(model)
    model(tokens)
    counts = losses.tokens_per_expert(model)
    assert {path: count.sum().item() for path, count in counts.items()} == {
        "layers.0.self_attn": 14 * 3,
        "layers.1.self_attn": 14 * 2,
    }
    assert [len(count) for count in counts.values()] == [4, 3]


def test_every_parameter_gets_a_gradient():
    model, tokens = made(SIZES | MOH)
    model.train()(tokens).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters())
