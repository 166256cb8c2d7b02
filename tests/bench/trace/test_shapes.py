"""Cached shapes of results are those that torch computes."""

import pytest
import torch
import torch.nn.functional as F

from headcount.bench.trace import shapes


@pytest.fixture(autouse=True)
def clear_cache():
    shapes._CACHE.clear()


def meta(*sizes, dtype=torch.float32):
    return torch.empty(*sizes, dtype=dtype, device="meta")


CALLS = {
    "sum": lambda x: x + x[:1],
    "product": lambda x: x @ x.transpose(1, 2),
    "biased": lambda x: F.linear(x, meta(11, 7), meta(11)),
    "transposed": lambda x: x.transpose(0, 2) * 2,
    "whole-and-real": lambda x: (x.argmax(-1) + 1, x.argmax(-1) + 1.0, x.argmax(-1) + True),
    "by-name": lambda x: (x.sum(-1, dtype=torch.float64), x.sum(-1, dtype=torch.float32)),
    "several": lambda x: x.topk(3, dim=-1),
    "joined": lambda x: (torch.cat([x, x]), torch.cat([x, x, x])),
    "written": lambda x: x.clone().add_(x),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
    "picked": lambda x: x[:, torch.zeros(5, dtype=torch.int64, device="meta")],
}


def facts(value):
    if isinstance(value, tuple):
        return tuple(map(facts, value))
    return (value.shape, value.stride(), value.dtype, value.storage_offset(), value.device, type(value))


@pytest.mark.parametrize("call", CALLS)
def test_cached_shapes_match_torch(call):
    x = meta(2, 5, 7)
    expected = facts(CALLS[call](x))
    with shapes.ShapeCache():
        first, second = CALLS[call](x), CALLS[call](x)
    assert facts(first) == facts(second) == expected


def test_results_have_own_storage():
    x = meta(2, 5)
    with shapes.ShapeCache():
        results = [x, *(x + x for _ in range(3))]
    assert len({y.untyped_storage()._cdata for y in results}) == 4


def test_default_dtype_is_part_of_key():
    whole, found = meta(3, dtype=torch.int64), []
    try:
        for default in (torch.float32, torch.float64):
            torch.set_default_dtype(default)
            with shapes.ShapeCache():
                found.append((whole / 2).dtype)
    finally:
        torch.set_default_dtype(torch.float32)
    assert found == [torch.float32, torch.float64]


def test_cpu_integers_keep_values():
    x = torch.tensor([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]])
    with shapes.skip_values("cpu"):
        for _ in range(2):
            assert x.topk(2).indices.tolist() == [[0, 2], [1, 2]]
        for mask in (x > 2, x > 4):
            assert x[mask].shape == (mask.sum(),)
    assert not any("index" in str(known) or "topk" in str(known) for known in shapes._CACHE)
