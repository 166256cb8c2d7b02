"""Light and dynamic convolutions: the block against a loop over taps, padding, and decoding."""

import pytest
import torch

from headcount.models.activations import relu
from headcount.models.build import build
from headcount.models.configs.make import make_config
from headcount.models.convolution import ConvolutionalDecoderLayer, ConvolutionalEncoderLayer, ConvolutionBlock
from tests.cases import assert_close, features

MODEL = dict(
    model="convolution", attention="mha", num_heads=3, head_dim=5, d_model=14, d_ff=11, num_weight_heads=7,
    encoder_kernel_sizes=(3, 19), decoder_kernel_sizes=(5, 1, 19), vocab_size=17,
)  # fmt: skip
KINDS = ("light", "dynamic")
SPELLINGS = ("windows", "band")
every_kind = pytest.mark.parametrize("kind", KINDS)
every_spelling = pytest.mark.parametrize("spelling", SPELLINGS)


def make_block(kind, kernel_size, causal, spelling="windows"):
    config = make_config(MODEL | dict(convolution=kind, spelling=spelling))
    module = ConvolutionBlock(config, kernel_size, causal).double().eval()
    for i, parameter in enumerate(module.parameters()):
        parameter.data = features(*parameter.shape, seed=i)
    return module


def convolve_by_taps(module, x, causal):
    """Return the equation's result for one sequence (T, d_m), tap by tap and channel by channel."""
    a, b = (x @ module.in_proj.weight.T + module.in_proj.bias).split(14, dim=-1)
    v, w = a * torch.sigmoid(b), module.kernel_size
    before = w - 1 if causal else w // 2
    z = torch.zeros_like(v)
    for t in range(len(x)):
        if module.kernel_proj is None:
            kernels = torch.softmax(module.weight, dim=-1)
        else:
            kernels = torch.softmax((module.kernel_proj.weight @ v[t]).view(7, w), dim=-1)
        for c in range(14):
            for k in range(w):
                if 0 <= t + k - before < len(x):
                    z[t, c] += kernels[c // 2, k] * v[t + k - before, c]
    return z @ module.out_proj.weight.T + module.out_proj.bias


@every_spelling
@every_kind
@pytest.mark.parametrize("causal", [False, True], ids=["symmetric", "causal"])
@pytest.mark.parametrize("kernel_size", [1, 2, 3, 5, 19])
@torch.no_grad()
def test_block_matches_equation(kernel_size, causal, kind, spelling):
    module, x = make_block(kind, kernel_size, causal, spelling), features(2, 11, 14)
    assert_close(module(x), torch.stack([convolve_by_taps(module, one, causal) for one in x]))


@every_kind
@torch.no_grad()
def test_layer_is_post_norm_residual(kind):
    config = make_config(MODEL | dict(convolution=kind))
    x, memory = features(2, 11, 14), features(2, 13, 14, seed=2)
    for side in (ConvolutionalEncoderLayer, ConvolutionalDecoderLayer):
        layer = side(config, relu, 5).double().eval()
        for i, parameter in enumerate(layer.parameters()):
            parameter.data = features(*parameter.shape, seed=i)
        causal = side is ConvolutionalDecoderLayer
        y = layer.conv_norm(x + torch.stack([convolve_by_taps(layer.conv, one, causal) for one in x]))
        if causal:
            y = layer.cross_attn_norm(y + layer.cross_attn(y, memory))
        expected = layer.feed_forward_norm(y + layer.feed_forward(y))
        assert_close(layer(x, memory) if causal else layer(x), expected)


def test_light_kernels_start_glorot_normal():
    sizes = dict(d_model=700, num_weight_heads=700, encoder_kernel_sizes=(19,), decoder_kernel_sizes=(3,))
    weight = build(make_config(MODEL | sizes | dict(convolution="light"))).encoder.layers[0].conv.weight
    assert weight.shape == (700, 19) and abs(weight.mean()) < 0.01
    assert abs(weight.std() / (2 / (700 + 19)) ** 0.5 - 1) < 4 / (2 * weight.numel()) ** 0.5
