"""The language model against its equations."""

import math

import torch

from headcount.models.build import build, example_inputs
from headcount.models.configs.make import make_config

SIZES = dict(model="llama", d_model=15, d_ff=17, num_layers=3, vocab_size=19)
MHA = dict(attention="mha", num_heads=6, num_kv_heads=2, head_dim=4, bias=False)


def made(values, length=7):
    config = make_config(values)
    inputs = example_inputs(config, {"batch_size": 2, "seq_len": length})
    return build(config, dtype=torch.float64), inputs["tokens"]


def rms_norm(x, weight):
    return x / torch.sqrt((x**2).mean(-1, keepdim=True) + 1e-5) * weight


@torch.no_grad()
def test_llama_matches_equations():
    model, tokens = made(SIZES | MHA)
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
