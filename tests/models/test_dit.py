"""The diffusion Transformer: patches, positions and conditions."""

import math

import pytest
import torch
import torch.nn.functional as F

from headcount.models.build import build, example_inputs
from headcount.models.configs.make import make_config
from tests.cases import features, randomise

SIZES = dict(model="dit", d_model=20, num_layers=3, patch_size=3, latent_size=15, num_classes=7, frequency_width=22)
MHA = dict(attention="mha", num_heads=3, head_dim=5)
MOH = dict(attention="moh", num_heads=(3, 3, 5), num_shared_heads=(3, 1, 2), top_k=(0, 1, 2), head_dim=5, bias=True)


def make_model(values, dtype=torch.float64, randomised=True):
    config = make_config(SIZES | values)
    model = build(config, dtype=dtype)
    # with adaLN-Zero every block would be the identity
    model = randomise(model) if randomised else model
    return model, example_inputs(config, {"batch_size": 2}, dtype=dtype)


def record_calls(module, position):
    """Return a list to which every call of ``module`` appends its first argument, its second, or its output."""
    seen = []
    module.register_forward_hook(lambda module, args, out: seen.append((*args[:2], out)[position]))
    return seen


@torch.no_grad()
def test_first_block_reads_convolved_patches_plus_positions():
    model, inputs = make_model(MHA)
    read = record_calls(model.blocks[0], 0)
    model(**inputs)
    weight = model.patch_embedding.weight.view(20, 4, 3, 3)
    patches = F.conv2d(inputs["latents"], weight, model.patch_embedding.bias, stride=3).flatten(2).transpose(1, 2)
    torch.testing.assert_close(read[0], patches + model.position_table, rtol=0, atol=1e-12)


@torch.no_grad()
def test_output_patches_are_token_projections():
    model, inputs = make_model(MHA)
    seen = record_calls(model.final_layer, -1)
    out = model(**inputs)
    assert out.shape == (2, 8, 15, 15)
    for token in (0, 4, 5, 24):
        row, column = divmod(token, 5)
        patch = out[:, :, row * 3 : row * 3 + 3, column * 3 : column * 3 + 3]
        assert torch.equal(patch, seen[0][:, token].view(2, 3, 3, 8).permute(0, 3, 1, 2))


def test_positions_match_formula():
    model, _ = make_model(MHA)
    table = model.position_table
    assert not table.requires_grad and table.shape == (1, 25, 20)
    for token in range(25):
        row, column = divmod(token, 5)
        for half, position in enumerate((column, row)):
            for i in range(5):
                angle = position / 10000 ** (2 * i / 10)
                assert table[0, token, half * 10 + i].item() == pytest.approx(math.sin(angle), abs=1e-6)
                assert table[0, token, half * 10 + 5 + i].item() == pytest.approx(math.cos(angle), abs=1e-6)


@pytest.mark.parametrize("values", [MHA, MOH], ids=["mha", "moh"])
@torch.no_grad()
def test_blocks_start_as_identity(values):
    model, inputs = make_model(values, randomised=False)
    seen = []
    for block in model.blocks:
        block.register_forward_hook(lambda module, args, out: seen.append((args[0], out)))
    assert model(**inputs).eq(0).all()
    assert all(torch.equal(before, after) for before, after in seen) and len(seen) == 3


@torch.no_grad()
def test_block_matches_equation():
    model, _ = make_model(MHA)
    block, x, c = model.blocks[0], features(2, 25, 20), features(2, 20, seed=1)
    parts = (c * torch.sigmoid(c)) @ block.modulation.proj.weight.t() + block.modulation.proj.bias
    s1, a1, g1, s2, a2, g2 = (parts[:, None, i * 20 : i * 20 + 20] for i in range(6))

    def norm(y):
        return (y - y.mean(-1, keepdim=True)) / torch.sqrt(y.var(-1, keepdim=True, unbiased=False) + 1e-6)

    y = x + g1 * block.self_attn(norm(x) * (1 + a1) + s1)
    hidden = (norm(y) * (1 + a2) + s2) @ block.feed_forward.fc1.weight.t() + block.feed_forward.fc1.bias
    hidden = 0.5 * hidden * (1 + torch.tanh(math.sqrt(2 / math.pi) * (hidden + 0.044715 * hidden**3)))
    expected = y + g2 * (hidden @ block.feed_forward.fc2.weight.t() + block.feed_forward.fc2.bias)
    torch.testing.assert_close(block(x, c), expected, rtol=0, atol=1e-12)


@torch.no_grad()
def test_condition_is_time_step_plus_label():
    model, inputs = make_model(MHA)
    seen = record_calls(model.blocks[0], 1)
    model(**inputs)
    embedding = model.timestep_embedding
    for b in range(2):
        t = inputs["timesteps"][b].item()
        angles = [t * 10000 ** (-i / 11) for i in range(11)]
        waves = torch.tensor([math.cos(a) for a in angles] + [math.sin(a) for a in angles], dtype=torch.float64)
        hidden = embedding.fc1(waves)
        expected = embedding.fc2(hidden * torch.sigmoid(hidden)) + model.label_embedding.weight[inputs["labels"][b]]
        torch.testing.assert_close(seen[0][b], expected, rtol=0, atol=1e-3)
