"""Operations that torch writes in others of its own, its prims: what they multiply and sum is a contraction too."""

import pytest
import torch
from torch import _refs as refs
from torch import nn

from headcount.bench.contractions.count import UncountedError
from headcount.bench.count import count_macs
from tests.bench.contractions.written import module


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(
    ("function", "macs"),
    [
        (lambda a, b: refs.sum(refs.mul(a, b), 1), 7 * 13),
        (lambda a, b: refs.sum(refs.mul(refs.unsqueeze(a, 1), refs.unsqueeze(b, 0)), -1), 7 * 7 * 13),
        (lambda a, b: refs.sum(refs.mul(refs.transpose(a, 0, 1), refs.transpose(b, 0, 1)), 0), 7 * 13),
        (lambda a, b: refs.softmax(refs.add(a, b), -1), 0),
        (lambda a, b: refs.native_layer_norm(a, (13,), b[0], b[1], 1e-5)[0], 0),
        (lambda a, b: refs.special.zeta(refs.special.erfcx(refs.erfinv(a)), b), 0),
    ],
)
def test_prims_count_as_operations(function, macs, device):
    a, b = (torch.ones(7, 13, device=device) for _ in range(2))
    assert count_macs(module(function), a, b).with_elementwise == macs


def test_abs_gradient_is_supported():
    """Torch finds out the shape of such a sum by prims."""

    def absolute(x, w):
        (slope,) = torch.autograd.grad((x @ w).abs().sum(), x.requires_grad_(), create_graph=True)
        return slope.abs()

    x, w = torch.ones(3, 5), nn.Parameter(torch.ones(5, 7))
    assert count_macs(module(absolute), x, w, backward=True).macs == 6 * 3 * 5 * 7


def test_prims_fft_raises():
    with pytest.raises(UncountedError, match=r"prims.fft_c2c on"):
        count_macs(module(refs.fft.fft), torch.ones(7, 13, dtype=torch.complex64))
