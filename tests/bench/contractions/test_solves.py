"""The triangular solve is counted by default, and equal layers with an unknown operation are one line."""

import pytest
import torch
from torch import nn

import headcount as hc
from headcount.bench.contractions.classify import UnsupportedError
from headcount.bench.trace.memory import measure_activations


@pytest.mark.parametrize(("batch", "size", "columns"), [(1, 1, 3), (2, 7, 5), (3, 64, 11), (5, 13, 1)])
def test_triangular_solve_is_counted_by_default(batch, size, columns):
    matrix, sides = torch.eye(size).expand(batch, size, size), torch.ones(batch, size, columns)
    by_rows = batch * columns * sum(range(size))
    for options in ({}, {"formula_set": "linalg"}):
        count = hc.count(lambda a, b: torch.linalg.solve_triangular(a, b, upper=False), matrix, sides, **options)
        assert count.macs == by_rows and not count.unsupported


class Layer(nn.Module):
    def forward(self, x):
        return torch.linalg.eigvalsh(x) + x


def test_equal_layers_are_one_line_of_the_message():
    layers = nn.Sequential(*(Layer() for _ in range(3)), nn.ReLU(), *(Layer() for _ in range(2)))
    with pytest.raises(UnsupportedError) as error:
        hc.count(layers, torch.eye(5))
    assert str(error.value).count("5x5") == 1 and "(5 times, in 0-2,4-5)" in str(error.value)
    assert len(error.value.unsupported) == 5
    assert str(hc.count(layers, torch.eye(5), allow_unsupported=True)).count("Not counted: ") == 1


class Attention(nn.Module):
    def forward(self, q, k, v):
        return nn.functional.scaled_dot_product_attention(q, k, v)


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_softmax_statistics_have_four_bytes(size, dtype):
    heads, tokens, width = (2, 3), 7, 8
    inputs = [torch.zeros(*heads, tokens, width, dtype=dtype, device="meta").requires_grad_() for _ in range(3)]
    found = measure_activations(Attention(), inputs, {}, training=True, element_bytes=size)
    assert found.saved_bytes == 6 * tokens * (size * width + 4)
