"""Random modules of known parts: headcount is the sum of the parts, and every count is explained."""

import itertools

import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from headcount.bench.counters.results import read

B, T = 2, 5


class Calls(nn.Module):
    """A part: ``function(weight, x)`` of one parameter, and its MACs."""

    def __init__(self, function, *shape):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(*shape))
        self.bias = nn.Parameter(torch.ones(()))
        self.function = function

    def forward(self, x):
        return self.function(self, x)


class Loop(nn.Module):
    """Children in a ModuleList, called in the order of ``order``: some twice, some never."""

    def __init__(self, children, order):
        super().__init__()
        self.blocks = nn.ModuleList(children)
        self.order = order

    def forward(self, x):
        for position in self.order:
            x = self.blocks[position](x) + x
        return x


def parts(d):
    """(part, MACs of one call) from (B, T, d) to (B, T, d), by hand."""
    linear, attention = B * T * d * d, 2 * B * T * T * d
    return [
        lambda: (nn.Linear(d, d), linear),
        lambda: (nn.Linear(d, d, bias=False), linear),
        lambda: (nn.Sequential(nn.Linear(d, 3), nn.GELU(), nn.Linear(3, d)), 2 * B * T * d * 3),
        lambda: (nn.LayerNorm(d), 0),
        lambda: (Calls(lambda m, x: F.linear(x, m.weight), d, d), linear),
        lambda: (Calls(lambda m, x: x @ m.weight + m.bias, d, d), linear),
        lambda: (Calls(lambda m, x: torch.matmul(x, m.weight), d, d), linear),
        lambda: (Calls(lambda m, x: x.matmul(m.weight.T), d, d), linear),
        lambda: (Calls(lambda m, x: torch.einsum("btd,df->btf", x, m.weight), d, d), linear),
        lambda: (Calls(lambda m, x: torch.bmm(x, m.weight.expand(B, d, d)), d, d), linear),
        # (T, 1, d) is broadcast over nothing, (B, T, 1, d) x (T, d, d) is: a weight for each position.
        lambda: (Calls(lambda m, x: torch.matmul(x[:, :, None], m.weight)[:, :, 0], T, d, d), linear),
        lambda: (Calls(lambda m, x: torch.addmm(m.bias, x.flatten(0, 1), m.weight).view(x.shape), d, d), linear),
        lambda: (Calls(lambda m, x: torch.softmax(x @ x.mT, -1) @ x, 1), attention),
        lambda: (Calls(lambda m, x: torch.bmm(F.softmax(torch.bmm(x, x.mT), -1), x), 1), attention),
        lambda: (
            Calls(lambda m, x: F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None])[:, 0], 1),
            attention,
        ),
        lambda: (Calls(lambda m, x: torch.baddbmm(x, x @ x.mT, x), 1), attention),
        lambda: (Calls(lambda m, x: torch.logsumexp(x, -1, keepdim=True) * F.silu(x), 1), 0),
        lambda: (nn.MultiheadAttention(d, 1, batch_first=True), None),
    ]


class Attended(nn.Module):
    """nn.MultiheadAttention from a sequence to itself, with its weights."""

    def __init__(self, attention):
        super().__init__()
        self.attention = attention

    def forward(self, x):
        return self.attention(x, x, x)[0]


@st.composite
def modules(draw, d, depth=2):
    """(module, MACs of one call) from (B, T, d) to (B, T, d), nested, with shared and repeated children."""
    if depth == 0 or draw(st.booleans()):
        part, macs = draw(st.sampled_from(parts(d)))()
        if macs is None:
            return Attended(part), B * T * d * 4 * d + 2 * B * T * T * d
        return part, macs
    children = draw(st.lists(modules(d, depth - 1), min_size=1, max_size=3))
    if draw(st.booleans()):
        order = draw(st.lists(st.integers(0, len(children) - 1), min_size=1, max_size=4))
        return Loop([child for child, _ in children], order), sum(children[i][1] for i in order)
    chosen = list(itertools.chain(children, children[:1] if draw(st.booleans()) else []))
    return nn.Sequential(*(child for child, _ in chosen)), sum(macs for _, macs in chosen)


@st.composite
def cases(draw):
    """(module, its MACs, its width)."""
    d = draw(st.sampled_from([3, 4, 7]))
    return (*draw(modules(d)), d)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(case=cases(), device=st.sampled_from(["cpu", "meta"]))
def test_random_module_is_the_sum_of_its_parts(case, device):
    module, macs, d = case
    found = read(module.to(device), (torch.ones(B, T, d, device=device),), label="random")
    assert found.headcount.macs == macs
    for cell in found.counters:
        assert cell.explained, (cell, module)
        assert cell.reason is None, (cell, module)
