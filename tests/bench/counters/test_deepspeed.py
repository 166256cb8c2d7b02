"""DeepSpeed's profiler, if installed: what it counts, what it misses, and that it restores torch."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from headcount.bench.counters import registry
from headcount.bench.counters.base import CounterError
from headcount.bench.counters.explain import MISSED, TWICE
from headcount.bench.counters.results import read

pytestmark = pytest.mark.skipif(
    not registry.installed("deepspeed"), reason="needs the extra deepspeed (pip install 'headcount[deepspeed]')"
)
B, T, IN, OUT = 3, 5, 7, 11


class Calls(nn.Module):
    def __init__(self, function, **children):
        super().__init__()
        self.function = function
        for name, child in children.items():
            setattr(self, name, child)

    def forward(self, *inputs):
        return self.function(self, *inputs)


def cell(function, *shapes, device="cpu", **children):
    module = (Calls(function, **children) if children or not isinstance(function, nn.Module) else function).to(device)
    inputs = [torch.ones(shape, device=device) for shape in shapes]
    (found,) = read(module, inputs, counters=["deepspeed"], label="calls").counters
    assert found.explained, found
    return found


def causes(found):
    return [(cause.what, cause.amount) for cause in found.explanation.causes]


matmul = torch.matmul
LINEAR = B * T * IN * OUT


@pytest.mark.parametrize(
    ("function", "shapes", "macs"),
    [
        (lambda m, x: x @ x.mT, [(B, T, IN)], B * T * IN * T),
        (lambda m, x: torch.bmm(x, x.mT), [(B, T, IN)], B * T * IN * T),
        (lambda m, a, x, y: torch.baddbmm(a, x, y), [(B, T, OUT), (B, T, IN), (B, IN, OUT)], LINEAR),
        (
            lambda m, q, k: F.scaled_dot_product_attention(q, k, k),
            [(B, 2, T, IN), (B, 2, OUT, IN)],
            2 * B * 2 * T * OUT * IN,
        ),
        (lambda m, x, w: F.conv1d(x, w, groups=2), [(B, 2 * IN, T + 2), (2 * OUT, IN, 3)], B * T * 2 * OUT * IN * 3),
        (lambda m, x, w: F.conv_transpose1d(x, w), [(B, IN, T), (IN, OUT, 3)], LINEAR * 3),
    ],
)
def test_counts_named_calls_and_operators(function, shapes, macs):
    found = cell(function, *shapes)
    assert found.macs == macs and found.difference == 0


def test_missed_calls():
    found = cell(lambda m, x: torch.einsum("btd,bsd->bts", x, x), (B, T, IN))
    assert (found.macs, causes(found)) == (0, [(MISSED, -B * T * T * IN)])
    found = cell(nn.LSTM(IN, OUT, batch_first=True), (B, T, IN))
    assert (found.macs, causes(found)) == (0, [(MISSED, -B * T * 4 * OUT * (IN + OUT))])
    found = cell(lambda m, x: matmul(x, x.mT), (B, T, IN))
    assert (found.macs, causes(found)) == (0, [(MISSED, -B * T * T * IN)])


def test_biased_linear_on_meta_counts_twice():
    linear = nn.Linear(IN, OUT)
    assert cell(linear, (B, T, IN)).difference == 0
    assert causes(cell(linear, (B, T, IN), device="meta")) == [(TWICE, LINEAR)]


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
def test_even_window_with_same_padding():
    found = cell(nn.Conv1d(IN, OUT, 4, padding="same"), (B, IN, T))
    assert found.difference == -B * IN * OUT * 4


@pytest.mark.parametrize("fails", [False, True])
def test_torch_is_restored(fails, capfd):
    def forward(m, x):
        y = m.a(x)
        if fails:
            raise KeyError("inside")
        return y

    owners = (torch, F, torch.Tensor)
    before = [dict(vars(owner)) for owner in owners]
    tool, module = registry.counter("deepspeed"), Calls(forward, a=nn.Linear(IN, OUT))
    own = [dict(vars(part)) for part in module.modules()]
    if fails:
        with pytest.raises(CounterError, match="^deepspeed did not count it: KeyError: 'inside'$"):
            tool.read(module, {"x": torch.ones(B, IN)}, label="it")
    else:
        reading = tool.read(module, {"x": torch.ones(B, IN)}, label="it")
        assert (reading.macs, reading.params) == (B * IN * OUT, IN * OUT + OUT)
        assert reading.by_module == {"a": B * IN * OUT}
    assert [dict(vars(owner)) for owner in owners] == before
    assert [vars(part).keys() for part in module.modules()] == [part.keys() for part in own]
    assert capfd.readouterr() == ("", "")
