"""Bytes of activations, against sums of tensors by hand at prime sizes."""

import pytest
import torch
from torch import nn

from headcount.bench.trace.memory import measure_activations
from tests.bench.contractions.function_modules import module

HIDDEN, OUT = 5 * 11, 5 * 3
"""Elements of the hidden layer and of the output of 5 rows."""


def perceptron(device="cpu"):
    return nn.Sequential(nn.Linear(7, 11), nn.ReLU(), nn.Linear(11, 3)).to(device)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("element_bytes", [2, None])
def test_peaks_are_sums_of_live_tensors(device, element_bytes):
    model, x = perceptron(device), torch.ones(5, 7, device=device)
    each = element_bytes or 4
    forward = measure_activations(model, (x,), {}, training=False, element_bytes=element_bytes)
    # before and after the activation
    assert forward.peak_bytes == 2 * HIDDEN * each
    step = measure_activations(model, (), {"input": x}, training=True, element_bytes=element_bytes)
    assert step.saved_bytes == (HIDDEN + OUT) * each
    # the activation and its two gradients, the output, and the gradients of the second layer
    assert step.peak_bytes == (3 * HIDDEN + OUT + 11 * 3 + 3) * each


def test_attention_on_meta_stores_no_scores():
    q = torch.ones(1, 2, 13, 8, device="meta")
    attention = module(lambda q: nn.functional.scaled_dot_product_attention(q, q, q))
    found = measure_activations(attention, (q,), {}, training=False)
    # the output and a number for each query
    assert found.peak_bytes == (2 * 13 * 8 + 2 * 13) * 4


@pytest.mark.parametrize("rows", [4, 2, 0])
def test_peak_leaves_out_a_cache(rows):
    """A cache that keeps some rows of a product leaves the others among activations."""

    class Cached(nn.Module):
        def forward(self, x):
            for _ in range(3):
                # its address may be that of a later tensor
                x = x + 0
            keys = x @ x.T
            return torch.cat([x] * 5).sum(), keys[:rows]

    x = torch.ones(4, 8)
    found = measure_activations(Cached(), (x,), {}, training=False, cache_of=lambda out: out[1:])
    assert found.peak_bytes == 4 * (4 * 8 + 5 * 4 * 8 + 1 + 4 * 4 - rows * 4)
