"""Cached shapes of results are those that torch computes."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.attention import flex_attention as flex

from headcount.bench.counting.copies import FakeWeights, with_fake_weights
from headcount.bench.counting.run import count_contractions
from headcount.bench.trace import shapes
from headcount.bench.trace.events import tensors_in
from headcount.bench.trace.record import record


@pytest.fixture(autouse=True)
def clear_cache():
    shapes._CACHE.clear()
    shapes._FAKES.clear()


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
    memory = value.untyped_storage().nbytes(), value.storage_offset()
    return (value.shape, value.stride(), value.dtype, *memory, value.device, type(value))


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


LAST = {"memory_format": torch.channels_last}
FAKE_CALLS = {
    "sum": lambda x, y, at: x + x[:1],
    "with-values": lambda x, y, at: (x * y, y * x, x + y[:, :1], torch.where(y > 0, x, y)),
    "views": lambda x, y, at: (x.mT, x[1], x[:, 2:4], x.expand(3, 2, 5, 7), x.unsqueeze(0)[..., 1:]),
    "several-views": lambda x, y, at: (*x.split(2, 1), *x.unbind(0), *x.chunk(2, -1)),
    "parts": lambda x, y, at: tuple(part @ part.mT for part in x),
    "by-type": lambda x, y, at: (x.sum(-1, dtype=torch.float64), x.sum(-1), x.double() + x, x / 2, x * True),
    "taken": lambda x, y, at: (x[:, at], x[:, at[:2]], x.index_select(1, at), x[at[1:2], at[:1]]),
    "masked": lambda x, y, at: (x[y > 0], x[y > 1], x.masked_fill(y > 0, 0.0)),
    "written": lambda x, y, at: (x.clone().add_(y), torch.zeros_like(x).index_add_(1, at, x[:, at])),
    "with-values-written": lambda x, y, at: (y.clone().add_(x), torch.zeros_like(y).index_add_(1, at, x[:, at])),
    "put": lambda x, y, at: (x.clone().index_put_((y > 0,), x.sum()), x.new_zeros(5).copy_(x[0, :, 0])),
    "attention": lambda x, y, at: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "convolved": lambda x, y, at: F.conv2d(x[None].to(**LAST), x[:, None, :3, :3], groups=2),
    "pooled": lambda x, y, at: (F.max_pool2d(x, 2), F.avg_pool2d(x, 2), F.interpolate(x[None], scale_factor=2)),
    "reshaped": lambda x, y, at: (x[:1].expand(4, 5, 7).transpose(0, 1).reshape(5, -1), x[:1].mT.reshape(1, 7, 5, 1)),
    "activated": lambda x, y, at: (F.gelu(x), F.softmax(x, -1), F.silu(x), F.leaky_relu(x), F.glu(x[..., :6])),
    "by-batch": lambda x, y, at: (F.batch_norm(x, y[0, :, 0], y[0, :, 1]), F.group_norm(x, 5), F.normalize(x)),
    "joined": lambda x, y, at: (torch.cat([x, y]), torch.stack([x, x]), F.pad(x, (1, 2)), x.roll(1), x.repeat(2, 1, 1)),
    "half": lambda x, y, at: (F.layer_norm(x.bfloat16(), (7,)), F.group_norm(x.bfloat16(), 5), x.bfloat16() * y),
    "normed": lambda x, y, at: F.layer_norm(F.dropout(x, 0.5, False), (7,), y[0, 0]),
}


class Twice(nn.Module):
    """Run a function of a weight, a tensor with values and positions twice."""

    def __init__(self, function):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 5, 7))
        self.function = function

    def forward(self, y, at):
        return self.function(self.weight, y, at), self.function(self.weight, y, at)


@pytest.mark.parametrize("call", FAKE_CALLS)
def test_fake_results_match_real_ones(call):
    y = torch.tensor([-1.0, 1.0, 2.0] * 24)[:70].reshape(2, 5, 7)
    twice = Twice(FAKE_CALLS[call]), (y, torch.tensor([3, 0, 3])), {}
    real, fake = record(*twice), record(*with_fake_weights(twice, FakeWeights(0)))

    def facts(trace):
        numbers = {}
        return [
            (fact.shape, fact.strides, fact.offset, fact.dtype, numbers.setdefault(fact.storage, len(numbers)))
            for event in trace.operations()
            for fact in (*event.tensors(), *tensors_in(event.out))
        ]

    assert [event.name for event in fake.operations()] == [event.name for event in real.operations()]
    assert facts(fake) == facts(real)


class Windowed(nn.Module):
    """FlexAttention over a window, whose mask is made in forward."""

    def __init__(self, masks):
        super().__init__()
        self.layer, self.keep = nn.Linear(8, 8), masks.append

    def forward(self, x):
        x, length = self.layer(x), x.shape[2]
        mask = flex.create_block_mask(lambda b, h, q, k: q < k + 3, None, None, length, length, "cpu")
        self.keep(mask)
        return flex.flex_attention(x, x, x, block_mask=mask)


@pytest.mark.parametrize("length, kind", [(128, torch.Tensor), (129, FakeTensor)])
def test_large_masks_have_no_values(monkeypatch, length, kind):
    monkeypatch.setattr(shapes, "MAX_VALUES", 128**2)
    masks = []
    call = with_fake_weights((Windowed(masks), (torch.ones(1, 2, length, 8),), {}), FakeWeights(0))
    macs = 2 * length * 8 * 8 + 2 * 2 * length * length * 8
    # with headcount's own modes, and with those of another counter
    assert count_contractions(record(*call)).macs == macs
    # eagerly, which headcount makes it by itself
    monkeypatch.setattr(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    with torch.no_grad(), shapes.cache_shapes(call[0]):
        call[0](*call[1])
    assert [type(mask.kv_num_blocks) for mask in masks] == [kind] * 2


class Tables(nn.Module):
    """A weight turned by complex numbers in a list, which are no buffer."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 5, 8))
        angles = torch.ones(5, 4)
        self.tables, self.scale = [torch.polar(angles, angles)], [torch.tensor(3.0)]

    def forward(self, y):
        turned = torch.view_as_complex(self.weight.unflatten(-1, (4, 2))) * self.tables[0]
        return torch.view_as_real(turned).flatten(2) @ self.weight[0].T * self.scale[0].item() * y


def test_tables_of_a_copied_module_are_complex():
    module = Tables()
    macs = count_contractions(record(module, (torch.ones(1),), {})).macs
    module = module.to("meta")
    module.tables = [one.to("meta") for one in module.tables]
    mode = FakeWeights(0)
    copied = with_fake_weights((module, (torch.ones(1),), {}), mode)
    assert isinstance(copied[0].tables[0], FakeTensor) and module.tables[0].is_meta
    assert count_contractions(record(*copied)).macs == macs == 6 * 5 * 5 * 8
    # numbers with values keep them, and nothing is drawn for complex ones
    assert copied[0].scale[0].item() == 3 and not mode.has_drawn


def test_drawn_numbers_are_drawn_again():
    fakes = [FakeWeights(seed) for seed in (0, 1)]
    found = []
    for mode in fakes:
        twice = Twice(lambda x, y, at: (x.argmax(-1) + 0, x.sum())), (torch.ones(1), torch.ones(1)), {}
        call = with_fake_weights(twice, mode)
        call[0].register_forward_hook(lambda _, __, out: found.append([one[0].tolist() for one in out]))
        record(*call)
    assert all(mode.has_drawn for mode in fakes)
    assert found[0] != found[1] and found[0][0] != found[0][1]


class MovesItsRouter(nn.Module):
    """Switch Transformers' router, which moves its layer to a type in forward."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(7, 3)

    def forward(self, x):
        self.router = self.router.to(torch.float64)
        return self.router(x.double()).argmax(-1).tolist()


def test_fake_weights_move_in_forward():
    trace = record(*with_fake_weights((MovesItsRouter(), (torch.ones(5, 7),), {}), FakeWeights(0)))
    product = next(event for event in trace.operations() if event.name == "addmm")
    assert [fact.shape for fact in product.tensors()] == [(3,), (5, 7), (7, 3)]


def test_copy_of_fake_buffers_has_their_mode():
    module = nn.BatchNorm1d(7)
    mode = FakeWeights(0)
    call = with_fake_weights((module, (torch.ones(5, 7),), {}), mode)
    found = []
    call[0].register_forward_pre_hook(lambda module, _: found.extend(module.buffers()))
    record(*call)
    assert all(one.fake_mode is mode for one in found if isinstance(one, FakeTensor))
    assert sum(isinstance(one, FakeTensor) for one in found) == 2
