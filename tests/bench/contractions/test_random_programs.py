"""Random programs, einsums, convolutions and modules against independent counts.

The environment variable PROGRAMS=2000 tries as many new examples of each (make nightly); without it the same 100 run.
The reference for elementwise programs runs them in numpy on arrays of element indices, and checks whether a sum adds
products of different elements of both operands.
"""

import os
from math import prod

import numpy as np
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from headcount.bench.counting.run import count_contractions
from headcount.bench.counting.tools import read
from headcount.bench.trace.record import record
from tests.bench.contractions.function_modules import Calls, module

PROGRAMS = int(os.environ.get("PROGRAMS", 0))
search = settings(
    max_examples=PROGRAMS or 100, deadline=None, derandomize=not PROGRAMS, suppress_health_check=list(HealthCheck)
)
DEVICE = st.sampled_from(["cpu", "meta"])


def count_macs_of(function, shapes, device):
    inputs = [torch.ones(shape, device=device) for shape in shapes]
    return count_contractions(record(module(function), inputs)).with_elementwise


STEPS = ["permute", "flatten", "negate", "clone", "shift", "unsqueeze", "rows", "written", "sliced", "shuffle"]


@st.composite
def programs(draw):
    """Draw the shapes of two broadcast factors, the steps after their product, an axis and the reduction over it."""
    shape = draw(st.permutations((2, 3, 5)))
    carries = [draw(st.sampled_from(["ab", "a", "b"])) for _ in shape]
    a, b = (tuple(n if operand in k else 1 for n, k in zip(shape, carries, strict=True)) for operand in "ab")
    steps = draw(st.lists(st.sampled_from(STEPS), max_size=3))
    end = draw(st.sampled_from(["sum", "mean", "cumsum", "index_add", "slices", "none", "relu-sum"]))
    return a, b, steps, draw(st.integers(0, 2)), end


def order(length):
    return np.random.default_rng(length).permutation(length)


def apply_step(x, step, lib):
    """Return the array or tensor after one step; ``lib`` is numpy or torch."""
    if step == "permute":
        return x.transpose(*reversed(range(x.ndim))) if lib is np else x.permute(*reversed(range(x.ndim)))
    if step == "flatten" and x.ndim > 1:
        return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])
    if step == "clone":
        return x.copy() if lib is np else x.clone()
    if step == "negate":
        return x if lib is np else -x
    if step == "shift":
        return lib.roll(x, 1, 0)
    if step == "unsqueeze":
        return x[None]
    if step == "rows":
        return x[order(len(x))] if lib is np else x[torch.tensor(order(len(x)), device=x.device)]
    if step == "written":
        out = lib.zeros_like(x)
        out[order(len(x)) if lib is np else torch.tensor(order(len(x)), device=x.device)] = x
        return out
    if step == "sliced":
        out = lib.zeros_like(x)
        out[..., : x.shape[-1]] = x
        return out
    if step == "shuffle":
        places = order(x.size if lib is np else x.numel())
        if lib is np:
            out = np.zeros_like(x)
            out.flat[places] = x.ravel()
            return out
        return torch.zeros_like(x).put(torch.tensor(places, device=x.device).view(x.shape), x)
    return x


def run(x, steps, axis, lib):
    """Return the array or tensor after the steps, and the axis of the reduction."""
    for step in steps:
        x = apply_step(x, step, lib)
    return x, axis % x.ndim


def expected(a, b, steps, axis, end):
    """Return the products if some sum adds two in which the elements of both operands differ, or if they are outer.

    After a shuffle, which moves values along several axes at once, every sum of several values counts if the operands
    have an index in common. index_add, and slices that are added one by one, always sum products.
    """
    shape = np.broadcast_shapes(a, b)
    if all(any(m < n for m, n in zip(operand, shape, strict=True)) for operand in (a, b)):
        return prod(shape)
    if end in ("none", "relu-sum"):
        return 0
    differ = True
    for operand in (a, b):
        entries = np.broadcast_to(np.arange(prod(operand)).reshape(operand), shape)
        result, at = run(entries, steps, axis, np)
        lines = np.moveaxis(result, at, 0).reshape(result.shape[at], -1)
        differ = differ & (lines != lines[:1])
    common = any(m == n for m, n in zip(a, b, strict=True))
    if end == "index_add":
        return prod(shape)
    if end == "slices":
        return prod(shape) if len(lines) > 1 else 0
    return prod(shape) if differ.any() or "shuffle" in steps and common and len(lines) > 1 else 0


@search
@given(program=programs(), device=DEVICE)
def test_random_program(program, device):
    a, b, steps, axis, end = program

    def function(a, b):
        x, at = run(a * b, steps, axis, torch)
        if end == "none":
            return x
        if end == "index_add":
            return torch.zeros_like(x).index_add(at, torch.zeros(x.shape[at], dtype=torch.int, device=x.device), x)
        if end == "slices":
            return sum(x.unbind(at), torch.ones(5, device=x.device).cos()[0])
        return x.relu().sum(at) if end == "relu-sum" else getattr(x, end)(at)

    assert count_macs_of(function, (a, b), device) == expected(*program), program


@st.composite
def equations(draw):
    """Draw sizes by letter, the letters of two operands of an einsum, and those of its result."""
    sizes = {letter: draw(st.sampled_from([1, 2, 3])) for letter in "abcd"}
    a, b = (draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True)) for _ in range(2))
    used = sorted({*a, *b})
    out = draw(st.lists(st.sampled_from(used), max_size=len(used), unique=True))
    # a letter of only one operand would be summed before the product, so it stays in the result
    return sizes, a, b, out + [letter for letter in used if letter not in out and (letter in a) != (letter in b)]


@search
@given(case=equations(), device=DEVICE)
def test_random_einsum(case, device):
    sizes, a, b, out = case
    shapes = [[sizes[letter] for letter in side] for side in (a, b)]
    text = f"{''.join(a)},{''.join(b)}->{''.join(out)}"
    summed = any(letter not in out for letter in a if letter in b)
    outer = bool(set(a) - set(b)) and bool(set(b) - set(a))
    macs = prod(sizes[letter] for letter in {*a, *b}) if summed or outer else 0
    assert count_macs_of(lambda x, y: torch.einsum(text, x, y), shapes, device) == macs, case


@st.composite
def convolutions(draw):
    """Draw the batch, channels, groups, length, window, stride, padding and dilation of a 1-d convolution."""
    groups = draw(st.sampled_from([1, 2]))
    into, out = (groups * draw(st.sampled_from([1, 2, 3])) for _ in range(2))
    taps, dilation = draw(st.sampled_from([2, 3])), draw(st.sampled_from([1, 2]))
    length = draw(st.integers(dilation * (taps - 1) + 2, 9))
    sizes = draw(st.sampled_from([1, 2])), into, out, groups, length, taps
    return *sizes, draw(st.sampled_from([1, 2])), draw(st.sampled_from([0, 1])), dilation


def by_convolution(x, w, stride, padding, dilation, groups):
    return F.conv1d(x, w, stride=stride, padding=padding, dilation=dilation, groups=groups)


def unfold_windows(x, w, stride, padding, dilation, groups):
    """Return windows (batch, group, channel, position, tap) and weights (group, out, channel, tap)."""
    x = F.pad(x, (padding, padding)).unfold(2, dilation * (w.shape[-1] - 1) + 1, stride)[..., ::dilation]
    return x.unflatten(1, (groups, -1)), w.unflatten(0, (groups, -1))


def by_einsum(*args):
    return torch.einsum("bgcpt,goct->bgop", *unfold_windows(*args))


def by_sum(*args):
    x, w = unfold_windows(*args)
    return (x[:, :, None] * w[:, :, :, None]).sum((3, 5))


def by_matmul(*args):
    x, w = unfold_windows(*args)
    return w.flatten(2) @ x.transpose(3, 4).flatten(2, 3)


@search
@given(case=convolutions(), form=st.sampled_from([by_convolution, by_einsum, by_sum, by_matmul]), device=DEVICE)
def test_random_convolution(case, form, device):
    batch, into, out, groups, length, taps, stride, padding, dilation = case
    positions = range(-padding, length + padding - dilation * (taps - 1), stride)
    shapes = (batch, into, length), (out, into // groups, taps)
    found = count_macs_of(lambda x, w: form(x, w, stride, padding, dilation, groups), shapes, device)
    assert found == batch * len(positions) * out * (into // groups) * taps, (case, form.__name__)


# Modules

B, T = 2, 5


def make_weighted(function, *shape):
    """Return a module ``function(weight, x)`` with one parameter of this shape."""
    return Calls(lambda m, x: function(m.weight, x), weight=nn.Parameter(torch.ones(*shape)))


class Loop(nn.Module):
    """Children in a ModuleList, called in ``order``, some several times and some never."""

    def __init__(self, children, order):
        super().__init__()
        self.blocks = nn.ModuleList(children)
        self.order = order

    def forward(self, x):
        for position in self.order:
            x = self.blocks[position](x) + x
        return x


def parts(d):
    """Return modules from (B, T, d) to (B, T, d) with the MACs of a call by hand."""
    linear, attention = B * T * d * d, 2 * B * T * T * d
    attended = Calls(lambda m, x: m.part(x, x, x)[0], part=nn.MultiheadAttention(d, 1, batch_first=True))
    by_weight = [
        F.linear,
        torch.matmul,
        lambda x, w: x.matmul(w.T),
        lambda x, w: torch.einsum("btd,df->btf", x, w),
        lambda x, w: torch.bmm(x, w.expand(B, d, d)),
        lambda x, w: torch.addmm(w[0], x.flatten(0, 1), w).view(x.shape),
    ]
    of_itself = [
        lambda w, x: torch.softmax(x @ x.mT, -1) @ x,
        lambda w, x: torch.bmm(F.softmax(torch.bmm(x, x.mT), -1), x),
        lambda w, x: F.scaled_dot_product_attention(*[x[:, None]] * 3)[:, 0],
        lambda w, x: torch.baddbmm(x, x @ x.mT, x),
    ]
    return [
        (nn.Linear(d, d, bias=False), linear),
        (nn.Sequential(nn.Linear(d, 3), nn.GELU(), nn.Linear(3, d)), 2 * B * T * d * 3),
        (nn.LayerNorm(d), 0),
        *((make_weighted(lambda w, x, call=call: call(x, w), d, d), linear) for call in by_weight),
        # (B, T, 1, d) x (T, d, d): a weight for each position
        (make_weighted(lambda w, x: torch.matmul(x[:, :, None], w)[:, :, 0], T, d, d), linear),
        *((make_weighted(call, 1), attention) for call in of_itself),
        (make_weighted(lambda w, x: torch.logsumexp(x, -1, keepdim=True) * F.silu(x), 1), 0),
        (attended, B * T * d * 4 * d + attention),
    ]


@st.composite
def modules(draw, d, depth=2):
    """Draw a nested module from (B, T, d) to (B, T, d), with shared and repeated children, and its MACs."""
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from(parts(d)))
    children, macs = zip(*draw(st.lists(modules(d, depth - 1), min_size=1, max_size=3)), strict=True)
    if draw(st.booleans()):
        order = draw(st.lists(st.integers(0, len(children) - 1), min_size=1, max_size=4))
        return Loop(children, order), sum(macs[i] for i in order)
    shared = draw(st.integers(0, 1))
    return nn.Sequential(*children, *children[:shared]), sum(macs) + sum(macs[:shared])


@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data(), d=st.sampled_from([3, 4, 7]), device=DEVICE)
def test_random_module_is_the_sum_of_its_parts(data, d, device):
    model, macs = data.draw(modules(d))
    found = read(model.to(device), (torch.ones(B, T, d, device=device),), label="random")
    assert found.macs == macs
    assert all(cell.explained and cell.reason is None for cell in found.tools), (found.tools, model)
