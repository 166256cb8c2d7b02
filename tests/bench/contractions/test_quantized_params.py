"""Quantised weights: parameters by the shape that they stand for, bytes by the tensors that hold them."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._pytree import tree_map

import headcount as hc


class Scaled(torch.Tensor):
    """A weight as rows of small integers and a scale for each."""

    @staticmethod
    def __new__(cls, values, scale, dtype=torch.float32):
        return torch.Tensor._make_wrapper_subclass(cls, values.shape, dtype=dtype, requires_grad=False)

    def __init__(self, values, scale, dtype=torch.float32):
        self.values, self.scale = values, scale

    def __tensor_flatten__(self):
        return ["values", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, inner, meta, size, stride):
        return cls(inner["values"], inner["scale"])

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is F.linear:
            x, weight, *bias = args
            product = x @ weight.values.to(x.dtype).mT * weight.scale
            return product + bias[0] if bias and bias[0] is not None else product
        return super().__torch_function__(function, types, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        if operation is torch.ops.aten.detach.default:
            return cls(args[0].values, args[0].scale)
        whole = tree_map(lambda x: x.values * x.scale[:, None] if isinstance(x, cls) else x, (args, kwargs or {}))
        return operation(*whole[0], **whole[1])


def quantized(layer, dtype):
    rows, columns = layer.weight.shape
    values = torch.ones(rows, columns, dtype=dtype)
    layer.weight = nn.Parameter(Scaled(values, torch.ones(rows)), requires_grad=False)
    return layer


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn, torch.int16], ids=str)
@pytest.mark.parametrize("sizes", [(5, 7), (5, 7, 3), (2, 11, 13, 2)], ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_subclass_has_the_parameters_that_it_stands_for(dtype, sizes, bias):
    pairs = list(zip(sizes[:-1], sizes[1:], strict=True))
    model = nn.Sequential(*(quantized(nn.Linear(i, j, bias), dtype) for i, j in pairs), nn.LayerNorm(sizes[-1]))
    model.idle = quantized(nn.Linear(3, 3, False), dtype)
    model.forward = lambda x: nn.Sequential(*list(model)[:-1])(x)
    used = sum(i * j + bias * j for i, j in pairs) + 2 * sizes[-1]
    count = hc.count(model, torch.ones(4, sizes[0]))
    assert (count.params, count.active_params) == (used + 9, used)
    scales = 4 * (sum(sizes[1:]) + 3)
    stored = dtype.itemsize * (sum(i * j for i, j in pairs) + 9)
    assert count.weight_bytes == stored + scales + 4 * (bias * sum(sizes[1:]) + 2 * sizes[-1])
    assert count.macs == 4 * sum(i * j for i, j in pairs)


class State:
    """As bitsandbytes packs a weight: its shape, scales of blocks, a table, and the state of the scales."""

    def __init__(self, shape, nested=False):
        self.shape = torch.Size(shape)
        self.absmax, self.code = torch.ones(shape[0]), torch.ones(16)
        self.state2 = State((2, 2)) if nested else None


class Packed(nn.Linear):
    """A linear layer of two 4-bit weights a byte."""

    def __init__(self, i, j, nested):
        super().__init__(i, j)
        self.weight = nn.Parameter(torch.zeros(i * j // 2, 1, dtype=torch.uint8), requires_grad=False)
        self.weight.quant_state = State((j, i), nested)

    def forward(self, x):
        packed = self.weight.flatten()
        state = self.weight.quant_state
        values = state.code[torch.stack([packed >> 4, packed & 15], 1).flatten().long()]
        return F.linear(x, values.view(state.shape) * state.absmax[:, None], self.bias)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("sizes", [(4, 6), (8, 3, 2), (128, 128, 128)], ids=str)
def test_packed_weight_has_the_parameters_that_it_stands_for(sizes, nested):
    pairs = list(zip(sizes[:-1], sizes[1:], strict=True))
    count = hc.count(nn.Sequential(*(Packed(i, j, nested) for i, j in pairs)), torch.ones(5, sizes[0]))
    params = sum(i * j + j for i, j in pairs)
    assert (count.params, count.active_params) == (params, params)
    inner = 4 * (2 + 16) if nested else 0
    assert count.weight_bytes == sum(i * j // 2 + 4 * j + 4 * j + 4 * 16 + inner for i, j in pairs)
    assert count.macs == 5 * sum(i * j for i, j in pairs)


def test_quantized_weights_of_a_function():
    layer = quantized(nn.Linear(5, 7), torch.int8)
    count = hc.count(lambda x: layer(x), torch.ones(4, 5))
    assert (count.params, count.active_params, count.weight_bytes) == (35 + 7, 35 + 7, 35 + 28 + 28)
