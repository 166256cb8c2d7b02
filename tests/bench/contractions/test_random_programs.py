"""Random elementwise programs against an interpreter that counts multiplications ending in a sum.

PROGRAMS=2000 in the environment searches as many programs of each sort, new ones every time (make nightly); without it
the same few are tried. The interpreter shares nothing with what it checks: it runs the program on arrays whose entries
say which index of which operand they are, and looks whether a sum adds products in which the entries of both operands
differ.
"""

import os

import numpy as np
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from headcount.bench.contractions.count import count_contractions
from headcount.bench.trace.record import record

SIZES = (2, 3, 5)
PROGRAMS = int(os.environ.get("PROGRAMS", 0))
search = settings(
    max_examples=PROGRAMS or 120, deadline=None, derandomize=not PROGRAMS, suppress_health_check=list(HealthCheck)
)


@st.composite
def programs(draw):
    """(shape of a, shape of b, steps): a product of two broadcast operands, then views and at most one reduction."""
    shape = draw(st.permutations(SIZES))
    keeps = [draw(st.sampled_from(["both", "a", "b"])) for _ in shape]
    a = tuple(n if k in ("both", "a") else 1 for n, k in zip(shape, keeps, strict=True))
    b = tuple(n if k in ("both", "b") else 1 for n, k in zip(shape, keeps, strict=True))
    steps = draw(st.lists(st.sampled_from(["permute", "flatten", "negate", "clone", "shift", "unsqueeze"]), max_size=3))
    axis = draw(st.integers(0, 2))
    end = draw(st.sampled_from(["sum", "mean", "cumsum", "none", "relu-sum"]))
    return a, b, steps, axis, end


def run(x, steps, axis, end, lib):
    for step in steps:
        if step == "permute":
            x = x.transpose(*reversed(range(x.ndim))) if lib is np else x.permute(*reversed(range(x.ndim)))
        elif step == "flatten" and x.ndim > 1:
            x = x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])
        elif step == "negate":
            x = x if lib is np else -x
        elif step == "clone":
            x = x.copy() if lib is np else x.clone()
        elif step == "shift":
            x = lib.roll(x, 1, 0)
        elif step == "unsqueeze":
            x = x[None]
    return x, axis % x.ndim


def expected(a, b, steps, axis, end):
    """Every product that some sum adds to another one in which both operands' entries differ, or that is outer."""
    shape = np.broadcast_shapes(a, b)
    if np.prod(a) < 2 or np.prod(b) < 2:
        return 0
    lacks_a = any(m < n for m, n in zip(a, shape, strict=True))
    lacks_b = any(m < n for m, n in zip(b, shape, strict=True))
    if lacks_a and lacks_b:
        return int(np.prod(shape))
    if end in ("none", "relu-sum"):
        return 0
    entry_a = np.broadcast_to(np.arange(np.prod(a)).reshape(a), shape)
    entry_b = np.broadcast_to(np.arange(np.prod(b)).reshape(b), shape)
    (moved_a, at), (moved_b, _) = (run(entry, steps, axis, end, np) for entry in (entry_a, entry_b))
    lines_a, lines_b = (np.moveaxis(m, at, 0).reshape(m.shape[at], -1) for m in (moved_a, moved_b))
    if lines_a.shape[0] == 1:
        return 0
    both = ((lines_a != lines_a[:1]) & (lines_b != lines_b[:1])).any()
    return int(np.prod(shape)) if both else 0


class Program(nn.Module):
    def __init__(self, steps, axis, end):
        super().__init__()
        self.program = steps, axis, end

    def forward(self, a, b):
        steps, axis, end = self.program
        x, at = run(a * b, steps, axis, end, torch)
        if end == "none":
            return x
        if end == "relu-sum":
            return x.relu().sum(at)
        return getattr(x, end)(at)


def check(program, device):
    a, b, steps, axis, end = program
    model = Program(steps, axis, end)
    found = count_contractions(record(model, (torch.ones(a, device=device), torch.ones(b, device=device))))
    assert found.with_elementwise == expected(a, b, steps, axis, end), program


@search
@given(program=programs(), device=st.sampled_from(["cpu", "meta"]))
def test_random_program(program, device):
    check(program, device)


@st.composite
def equations(draw):
    """An einsum of two operands over sizes that may be 1, and its shapes."""
    letters = {letter: draw(st.sampled_from([1, 2, 3])) for letter in "abcd"}
    sides = [draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True)) for _ in range(2)]
    used = sorted({*sides[0], *sides[1]})
    kept = draw(st.lists(st.sampled_from(used), max_size=len(used), unique=True))
    # What one operand alone has and the result lacks is summed before any product.
    common = set(sides[0]) & set(sides[1])
    kept += [letter for letter in used if letter not in kept and letter not in common]
    text = f"{''.join(sides[0])},{''.join(sides[1])}->{''.join(kept)}"
    return text, [tuple(letters[x] for x in side) for side in sides], letters, sides, kept


@search
@given(case=equations(), device=st.sampled_from(["cpu", "meta"]))
def test_random_einsum(case, device):
    text, shapes, letters, sides, kept = case
    if min(np.prod(shape) for shape in shapes) < 2:
        return

    class Module(nn.Module):
        def forward(self, a, b):
            return torch.einsum(text, a, b)

    found = count_contractions(record(Module(), [torch.ones(shape, device=device) for shape in shapes]))
    whole = int(np.prod([letters[x] for x in {*sides[0], *sides[1]}]))
    summed = any(x not in kept for x in sides[0] if x in sides[1])
    large = {x for x in letters if letters[x] > 1}
    outer = bool(large & set(sides[0]) - set(sides[1])) and bool(large & set(sides[1]) - set(sides[0]))
    assert found.with_elementwise == (whole if summed or outer else 0), case


@st.composite
def windows(draw):
    """A convolution over one dimension: batch, channels, groups, length, window, stride, padding, dilation."""
    groups = draw(st.sampled_from([1, 2]))
    into, out = (groups * draw(st.sampled_from([1, 2, 3])) for _ in range(2))
    taps, dilation = draw(st.sampled_from([2, 3])), draw(st.sampled_from([1, 2]))
    length = draw(st.integers(dilation * (taps - 1) + 2, 9))
    sizes = draw(st.sampled_from([1, 2])), into, out, groups, length, taps
    return *sizes, draw(st.sampled_from([1, 2])), draw(st.sampled_from([0, 1])), dilation


def by_convolution(x, w, stride, padding, dilation, groups):
    return F.conv1d(x, w, stride=stride, padding=padding, dilation=dilation, groups=groups)


def _windows_of(x, taps, stride, padding, dilation, groups):
    """(batch, group, channel, position, tap)."""
    x = F.pad(x, (padding, padding))
    x = x.unfold(2, dilation * (taps - 1) + 1, stride)[..., ::dilation]
    return x.unflatten(1, (groups, -1))


def by_einsum(x, w, stride, padding, dilation, groups):
    seen = _windows_of(x, w.shape[-1], stride, padding, dilation, groups)
    return torch.einsum("bgcpt,goct->bgop", seen, w.unflatten(0, (groups, -1)))


def by_sum(x, w, stride, padding, dilation, groups):
    seen = _windows_of(x, w.shape[-1], stride, padding, dilation, groups)
    return (seen[:, :, None] * w.unflatten(0, (groups, -1))[:, :, :, None]).sum((3, 5))


def by_matmul(x, w, stride, padding, dilation, groups):
    seen = _windows_of(x, w.shape[-1], stride, padding, dilation, groups)
    return w.unflatten(0, (groups, -1)).flatten(2) @ seen.transpose(3, 4).flatten(2, 3)


def multiplications(batch, into, out, groups, length, taps, stride, padding, dilation):
    """One for each tap of each window of each pair of channels of a group, walked through."""
    total, start = 0, -padding
    while start + dilation * (taps - 1) < length + padding:
        total += sum(into // groups for _ in range(out) for _ in range(taps))
        start += stride
    return batch * total


@search
@given(
    case=windows(),
    form=st.sampled_from([by_convolution, by_einsum, by_sum, by_matmul]),
    device=st.sampled_from(["cpu", "meta"]),
)
def test_random_convolution(case, form, device):
    batch, into, out, groups, length, taps, stride, padding, dilation = case

    class Module(nn.Module):
        def forward(self, x, w):
            return form(x, w, stride, padding, dilation, groups)

    shapes = (batch, into, length), (out, into // groups, taps)
    found = count_contractions(record(Module(), [torch.ones(shape, device=device) for shape in shapes]))
    assert found.with_elementwise == multiplications(*case), (case, form.__name__)
