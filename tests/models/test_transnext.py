"""TransNeXt around its attention: patches, stages, gradients and initialization."""

import math

import pytest
import torch
import torch.nn.functional as F

from headcount.models.build import build
from headcount.models.configs.make import make_config
from headcount.models.configs.presets import preset
from headcount.models.transnext import DepthwiseConvolution, PatchEmbedding

IMAGES = dict(
    model="transnext", attention="aggregated", d_model=(10, 21), num_heads=(2, 3), depths=(1, 2), mlp_ratio=(5, 3),
    pool_ratio=(5, 1), image_size=40, num_classes=7, position_width=5,
)  # fmt: skip


def test_unfolded_products_match_conv2d():
    torch.manual_seed(0)
    for stride in (4, 2):
        patches = PatchEmbedding(3, 5, stride).double()
        x = torch.randn(2, 3, 16, 16, dtype=torch.float64)
        kernels = patches.proj.weight.unflatten(1, (3, 2 * stride - 1, 2 * stride - 1))
        out = F.conv2d(x, kernels, patches.proj.bias, stride=stride, padding=stride - 1).flatten(2).transpose(1, 2)
        torch.testing.assert_close(patches(x), patches.norm(out))
    conv = DepthwiseConvolution(5, 6).double()
    torch.nn.init.normal_(conv.weight), torch.nn.init.normal_(conv.bias)
    x = torch.randn(2, 36, 5, dtype=torch.float64)
    grid = x.transpose(1, 2).unflatten(2, (6, 6))
    expected = F.conv2d(grid, conv.weight.unflatten(1, (1, 3, 3)), conv.bias, padding=1, groups=5)
    torch.testing.assert_close(conv(x), expected.flatten(2).transpose(1, 2))


@pytest.mark.parametrize("shape", [(2, 3, 41, 40), (2, 3, 80, 80), (2, 1, 40, 40)])
def test_wrong_image_size_raises(shape):
    found = ", ".join(map(str, shape))
    message = rf"^images must be \(B, 3, 40, 40\) as in image_size, not \({found}\)$"
    with pytest.raises(ValueError, match=message):
        build(make_config(IMAGES))(torch.zeros(shape))


def test_fine_tuned_stages_keep_their_pretrained_grid():
    stages = preset("transnext-base-384").stages
    assert [(stage.side, stage.pretrained_side) for stage in stages] == [(96, 56), (48, 28), (24, 14), (12, 7)]


def test_depthwise_initialization():
    """Weights are from N(0, 2 / fan-out); the fan-out of a depthwise kernel is its 9 taps."""
    parts = build(make_config(IMAGES | dict(mlp_ratio=(50, 30)))).modules()
    weights = torch.cat([part.weight.flatten() for part in parts if isinstance(part, DepthwiseConvolution)])
    # a gated unit has two thirds of the ratio: 2/3 of 50 * 10 channels in one block, of 30 * 21 in two
    assert len(weights) == 9 * (333 + 2 * 420)
    assert abs(weights.mean()) < 4 * (2 / 9 / len(weights)) ** 0.5
    assert abs(weights.std() / math.sqrt(2 / 9) - 1) < 4 / (2 * len(weights)) ** 0.5


def test_norm_epsilon():
    norms = [part for part in build(make_config(IMAGES)).modules() if isinstance(part, torch.nn.LayerNorm)]
    blocks = [norm for norm in norms if norm.eps == 1e-6]
    # two of each of three blocks, and one behind each stage; those of patches and pooled keys have torch's own
    assert len(blocks) == 2 * 3 + 2 and {norm.eps for norm in norms} <= {1e-6, 1e-5}
