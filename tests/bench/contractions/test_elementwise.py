"""Products written elementwise and summed afterwards: each against an integer worked out by hand."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from headcount.bench.contractions.count import ElementwiseError, count_contractions
from headcount.bench.contractions.elementwise import CONTRACTION, SCALED, SQUARE
from headcount.bench.count import assert_macs, count_macs
from headcount.bench.trace.record import record
from tests.bench.contractions.written import module


def made(shapes, device):
    return [torch.ones(s, device=device) if isinstance(s, tuple) else s.to(device) for s in shapes]


def sizes(function, *shapes, device="cpu", backward=False):
    """Multiplications by kind, dispatched ones under "dispatched"."""
    found = count_contractions(record(module(function), made(shapes, device), backward=backward))
    out = {"dispatched": found.macs} if found.macs else {}
    for part in found.elementwise:
        out[part.kind] = out.get(part.kind, 0) + part.size
    return out


def index(rows, columns):
    return torch.arange(rows) % columns


def gathered(y, g, i, how):
    return torch.zeros_like(y)[:7].scatter_reduce(0, i[:, None].expand(13, 11), y * g, reduce=how)


def cumulative_attention(q, k, v):
    return (q[..., None] * (k[..., None] * v[..., None, :]).cumsum(1)).sum(-2)


def taps(x, w):
    out = 0
    for k in range(w.shape[1]):
        out = out + x[:, k : k + 5] * w[:, k : k + 1]
    return out


def taps_on_a_bias(x, w, b):
    out = b[:, None].expand(-1, 5)
    for k in range(w.shape[1]):
        out = torch.addcmul(out, x[:, k : k + 5], w[:, k : k + 1])
    return out


def rolled(x, w):
    return sum(torch.roll(x, k, 1) * w[:, k : k + 1] for k in range(w.shape[1]))


def experts_in_a_loop(x, g, w):
    out = torch.zeros_like(x)
    for e in range(g.shape[1]):
        out += g[:, e : e + 1] * (x @ w[e])
    return out


def selective_scan(u, dt, a, b, c):
    decay = (dt[..., None] * a).exp()
    step = dt[..., None] * b[:, :, None] * u[..., None]
    state, out = torch.zeros_like(step[:, 0]), []
    for t in range(u.shape[1]):
        state = decay[:, t] * state + step[:, t]
        out.append((state * c[:, t, None]).sum(-1))
    return torch.stack(out, 1)


def gated_delta_rule(q, k, v, g, beta):
    state = torch.zeros(*k.shape[:2], k.shape[-1], v.shape[-1], device=q.device)
    out = torch.zeros_like(v)
    for t in range(k.shape[2]):
        state = state * g[:, :, t, None, None].exp()
        seen = (state * k[:, :, t, :, None]).sum(-2)
        change = (v[:, :, t] - seen) * beta[:, :, t, None]
        state = state + k[:, :, t, :, None] * change[:, :, None]
        out[:, :, t] = (state * q[:, :, t, :, None]).sum(-2)
    return out


def sampled(values, places, weights):
    picked = [F.grid_sample(level, places, align_corners=False) for level in values.unbind(0)]
    return (torch.stack(picked, -2).flatten(-2) * weights).sum(-1)


COUNTED = [
    ("sum", lambda x, w: (x[:, :, None] * w).sum(1), [(7, 13), (13, 11)], 7 * 13 * 11),
    ("of-vectors", lambda x, w: (x * w).sum(-1), [(7,), (7,)], 7),
    ("over-no-index-by-number", lambda x, w: (x * w).sum(()), [(7, 13), (13,)], 7 * 13),
    ("picked", lambda x, w, i: (x * w).index_select(0, i).sum(-1), [(7, 13), (13,), index(5, 7)], 7 * 13),
    ("mean", lambda x, w: (x * w).mean(-1), [(7, 13), (7, 13)], 7 * 13),
    ("nansum", lambda x, w: (x * w).nansum(-1), [(7, 13), (13,)], 7 * 13),
    ("in-place", lambda x, w: x.clone().mul_(w).sum(), [(7, 13), (13,)], 7 * 13),
    ("scaled-first", lambda x, w: (-2 * (x * w) / 3).sum(-1), [(7, 13), (13,)], 7 * 13),
    ("through-views", lambda x, w: (x * w).mT.reshape(13 * 7).sum(), [(7, 13), (13,)], 7 * 13),
    ("merged", lambda x, w: (x * w).flatten(1).sum(-1), [(7, 13, 3), (7, 13, 1)], 7 * 13 * 3),
    ("masked", lambda x, w: (x * w).masked_fill(x > 2, 0).sum(-1), [(7, 13), (13,)], 7 * 13),
    ("padded", lambda x, w: F.pad(x * w, (0, 3)).sum(-1), [(7, 13), (13,)], 7 * 13),
    ("moa-combine", lambda y, g: (y * g[..., None]).sum(1), [(7, 3, 11), (7, 3)], 7 * 3 * 11),
    ("moa-combine-of-one", lambda y, g: (y * g[..., None]).sum(1), [(7, 1, 11), (7, 1)], 7 * 11),
    ("attention-pooling", lambda x, s: (x * s.softmax(1)[..., None]).sum(1), [(2, 7, 11), (2, 7)], 2 * 7 * 11),
    ("vecdot", torch.linalg.vecdot, [(7, 13), (7, 13)], 7 * 13),
    ("index_add", lambda y, g, i: torch.zeros_like(y)[:7].index_add(0, i, y * g[:, None]),
     [(13, 11), (13,), index(13, 7)], 13 * 11),
    ("scatter_add", lambda y, g, i: torch.zeros_like(y)[:7].scatter_add(0, i[:, None].expand(13, 11), y * g[:, None]),
     [(13, 11), (13,), index(13, 7)], 13 * 11),
    ("index_put", lambda y, g, i: torch.zeros_like(y)[:7].index_put((i,), y * g[:, None], accumulate=True),
     [(13, 11), (13,), index(13, 7)], 13 * 11),
    ("index_put-by-name", lambda y, g, i: torch.ops.aten.index_put(
        self=torch.zeros_like(y)[:7], indices=(i,), values=y * g[:, None], accumulate=True),
     [(13, 11), (13,), index(13, 7)], 13 * 11),
    ("index_put-by-its-kernel",
     lambda y, g, i: torch._index_put_impl_(torch.zeros_like(y)[:7], [i], y * g[:, None], accumulate=True),
     [(13, 11), (13,), index(13, 7)], 13 * 11),
    ("fold", lambda x, w: F.fold(x * w, (1, 9), (1, 3)), [(2, 15, 7), (15, 1)], 2 * 15 * 7),
    ("unfold", lambda x, w: (x.unfold(1, 3, 1) * w[:, None]).sum(-1), [(11, 7), (11, 3)], 11 * 5 * 3),
    ("taps", taps, [(11, 7), (11, 3)], 11 * 5 * 3),
    ("taps-addcmul", taps_on_a_bias, [(11, 7), (11, 3), (11,)], 11 * 5 * 3),
    ("taps-rolled", rolled, [(11, 7), (11, 3)], 11 * 7 * 3),
    ("stacked", lambda x, w: torch.stack([x[i] * w[i] for i in range(3)]).sum(0), [(3, 7), (3, 7)], 3 * 7),
    ("two-terms", lambda a, b, c, d: a * b + c * d, [(7, 5)] * 4, 2 * 7 * 5),
    ("two-terms-in-one-call", lambda a, b, c, d: torch.addcmul(a * b, c, d), [(7, 5)] * 4, 2 * 7 * 5),
    ("lerp", torch.lerp, [(7, 5), (7, 5), (7, 5)], 7 * 5),
    ("cumulative-attention", cumulative_attention, [(2, 7, 3), (2, 7, 3), (2, 7, 5)], 2 * 2 * 7 * 3 * 5),
    # dt a, which the exponential takes; dt b, and that times u; the state's decay; what it gives.
    ("selective-scan", selective_scan, [(2, 7, 5), (2, 7, 5), (5, 3), (2, 7, 3), (2, 7, 3)], 5 * 2 * 7 * 5 * 3),
    # The state's decay, what it holds of the key, its change, what it gives.
    ("gated-delta-rule", gated_delta_rule, [(2, 3, 4, 5), (2, 3, 4, 5), (2, 3, 4, 7), (2, 3, 4), (2, 3, 4)],
     4 * 2 * 3 * 4 * 5 * 7),
    ("deformable", sampled, [(3, 2, 5, 4, 4), (2, 7, 3, 2), (2, 5, 7, 9)], 2 * 5 * 7 * 9),
    ("outer", torch.outer, [(7,), (13,)], 7 * 13),
    ("outer-by-mul", lambda a, b: a[:, None] * b, [(7,), (13,)], 7 * 13),
    ("kron", torch.kron, [(7, 3), (5, 2)], 7 * 3 * 5 * 2),
    ("einsum-without-an-arrow", lambda a, b: torch.einsum("t b, bs", a, b), [(7, 1), (1, 5)], 7 * 5),
    ("einsum-rank-one", lambda a, b: torch.einsum("btd,bsd->bts", a, b), [(2, 7, 1), (2, 5, 1)], 2 * 7 * 5),
    ("in-the-other-branch", lambda x, a, b, c: torch.where(x > 0, c, a * b).sum(1), [(7, 5)] * 4, 7 * 5),
    ("joined", lambda a, b, c, d: torch.cat([a * b, c * d]).sum(0), [(7, 5), (5,), (7, 5), (5,)], 2 * 7 * 5),
    ("joined-inside", lambda a, b, c, d: torch.cat([a * b, c * d], -1).sum(-1), [(7, 5), (7, 1)] * 2, 2 * 7 * 5),
    ("padded-operand", lambda x, w: (F.pad(x.expand(7, 5), (0, 3)) * w).sum(1), [(7, 1), (7, 8)], 7 * 8),
    ("running-sum", lambda x, w: (x.cumsum(1) * w).sum(1), [(7, 5), (7, 5)], 7 * 5),
    ("running-sum-expanded", lambda x, w: (x.expand(7, 5).cumsum(1) * w).sum(1), [(7, 1), (7, 5)], 7 * 5),
    ("pool", lambda x, w: F.avg_pool2d(x * w, (1, 3)), [(2, 3, 5, 7), (2, 3, 5, 7)], 2 * 3 * 5 * 7),
    ("trace", lambda x, w: (x * w).trace(), [(7, 7), (7, 7)], 7 * 7),
    ("segments", lambda a, b, n: torch.segment_reduce(a * b, "sum", lengths=n, unsafe=True),
     [(7,), (7,), torch.tensor([3, 4])], 7),
    ("two-numbers", lambda a, b: (a * b).sum(), [(2,), (2,)], 2),
    ("taps-on-a-weight-summed-first", lambda x, w, c: (c + (x[:, :5] * w).sum(1)) + (x[:, 1:] * w).sum(1),
     [(3, 6, 7), (3, 1, 7), (3, 7)], 2 * 3 * 5 * 7),
    ("joined-then-added", lambda a, b, c, d, e, f: torch.cat([a * b, c * d]) + e * f,
     [(7, 5)] * 4 + [(14, 5)] * 2, 2 * 14 * 5),
    ("scatter_reduce-sum", lambda y, g, i: gathered(y, g, i, "sum"), [(13, 11), (13, 1), index(13, 7)], 13 * 11),
    ("scatter_reduce-mean", lambda y, g, i: gathered(y, g, i, "mean"), [(13, 11), (13, 1), index(13, 7)], 13 * 11),
    ("embedding-gradient", lambda i, v, w: torch.ops.aten.embedding_dense_backward(v * w, i, 3, -1, False),
     [index(13, 3), (13, 11), (13, 1)], 13 * 11),
    ("unfold-backward", lambda x, w: torch.ops.aten.unfold_backward(x * w, [11], 0, 3, 2), [(5, 3), (5, 3)], 5 * 3),
    ("adaptive-pool", lambda x, w: torch.ops.aten._adaptive_avg_pool2d(x * w, [1, 2]), [(2, 3, 5, 7)] * 2, 6 * 5 * 7),
    ("pool-3d", lambda x, w: F.avg_pool3d(x * w, 2), [(2, 3, 5, 7, 11)] * 2, 2 * 3 * 5 * 7 * 11),
    ("einsum-combine-of-one", lambda y, g: torch.einsum("nkd,nk->nd", y, g), [(7, 1, 11), (7, 1)], 7 * 11),
]  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(("function", "shapes", "macs"), [case[1:] for case in COUNTED], ids=[c[0] for c in COUNTED])
def test_summed_product_is_a_contraction(function, shapes, macs, device):
    assert sizes(function, *shapes, device=device) == {CONTRACTION: macs}


NOT_COUNTED = [
    ("hadamard", lambda a, b: a * b, [(7, 5), (7, 5)]),
    ("einsum-hadamard", lambda a, b: torch.einsum("a b, a b->ab", a, b), [(7, 5), (7, 5)]),
    ("gate-that-does-not-carry-the-index", lambda x, g: (x * g[:, None]).mean(1), [(2, 7, 5), (2, 5)]),
    ("the-same-by-name", lambda x, g: torch.ops.aten.mean(self=x * g[:, None], dim=[1]), [(2, 7, 5), (2, 5)]),
    ("the-same-expanded", lambda x, g: (x * g[:, None].expand(2, 7, 5).contiguous()).mean(1), [(2, 7, 5), (2, 5)]),
    ("columns-do-not-carry-the-index", lambda a, b, c: (a.expand(7, 5) * b * c).sum(1), [(7, 1), (7, 1), (7, 5)]),
    ("nor-in-the-other-order", lambda a, b, c: (b * a.expand(7, 5) * c).sum(1), [(7, 1), (7, 1), (7, 5)]),
    ("after-a-nonlinearity", lambda a, b: (a * b).relu().sum(), [(7, 5), (7, 5)]),
    ("a-number", lambda a: (a * 3).sum(), [(7, 5)]),
    ("a-fill", lambda a: (a * torch.full_like(a, 3)).sum(), [(7, 5)]),
    ("a-fill-copied", lambda a: (a * torch.empty_like(a).copy_(torch.full_like(a, 3))).sum(), [(7, 5)]),
    ("a-mask-of-truth-values", lambda a: (a * (a > 2)).sum(), [(7, 5)]),
    ("index_put-that-replaces", lambda y, g, i: torch.zeros_like(y)[:7].index_put((i,), y * g[:, None]),
     [(13, 11), (13,), index(13, 7)]),
    ("a-power-by-name", lambda a: torch.ops.aten.pow(self=a, exponent=3).sum(), [(7, 5)]),
    ("layer-norm", lambda a: F.layer_norm(a, (5,)), [(7, 5)]),
    ("repeated-in-a-view", lambda x, g: (x[..., None] * g[:, None].expand(2, 7, 5).clone().view(2, 7, 5, 1)).mean(1),
     [(2, 7, 5), (2, 5)]),
    ("norm-of-order-one", lambda a: torch.linalg.vector_norm(a, 1), [(7, 5)]),
    ("norm-of-order-three", lambda a: torch.ops.aten.norm(a, 3, [1]), [(7, 5)]),
    ("variance-of-one-number", lambda a: torch.var(a, 0, correction=0), [(1,)]),
    ("scatter_reduce-prod", lambda y, g, i: gathered(y, g, i, "prod"), [(13, 11), (13, 1), index(13, 7)]),
    ("scatter_reduce-amax", lambda y, g, i: gathered(y, g, i, "amax"), [(13, 11), (13, 1), index(13, 7)]),
    ("sum-of-constants", lambda y: ((torch.full_like(y, 2) + torch.ones_like(y)) * y).sum(1), [(3, 5)]),
    ("one-number", lambda a, b: (a * b).sum(), [(2,), (1,)]),
    ("sum-of-equal-values", lambda x, w: (x.sum(1, keepdim=True).expand(7, 5) * w).sum(1), [(7, 5), (7, 5)]),
    ("size-one-index-in-a-view", lambda x, y: (x * y).view(2, 15).sum(1), [(2, 3, 1, 5), (2, 1, 1, 1)]),
    ("softmax", lambda a: a.exp() / a.exp().sum(-1, keepdim=True), [(7, 5)]),
]  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(("function", "shapes"), [case[1:] for case in NOT_COUNTED], ids=[c[0] for c in NOT_COUNTED])
def test_unsummed_product_is_not_counted(function, shapes, device):
    assert sizes(function, *shapes, device=device) == {}


def test_rotary_angles_are_an_outer_product():
    def rotated(x):
        angles = torch.arange(7.0)[:, None] * 10.0 ** -torch.arange(4.0)
        cos, sin = torch.cat([angles, angles], -1).cos(), torch.cat([angles, angles], -1).sin()
        left, right = x.chunk(2, -1)
        return x * cos + torch.cat([-right, left], -1) * sin

    assert sizes(rotated, (2, 7, 8)) == {CONTRACTION: 7 * 4}


def test_weighted_bincount():
    counted = sizes(lambda a, b, i: torch.bincount(i, weights=a * b), (13,), (13,), index(13, 3))
    assert counted == {CONTRACTION: 13}


@pytest.mark.parametrize(
    ("function", "macs"),
    [
        (lambda a: (a * a).sum(-1), 7 * 5),
        (lambda a: a.pow(2).mean(-1), 7 * 5),
        (lambda a: a.square().sum(), 7 * 5),
        (lambda a: (a * a.clone()).sum(), 7 * 5),
        (lambda a: a.norm(dim=-1), 7 * 5),
        (lambda a: a.var(-1), 7 * 5),
        (lambda a: torch.std_mean(a, 1)[0], 7 * 5),
        (lambda a: torch.ops.aten.norm(a, 2), 7 * 5),
        (lambda a: torch.ops.aten.norm(a, None, [1]), 7 * 5),
        (lambda a: torch.ops.aten.mse_loss(a, a[0]), 7 * 5),
        (lambda a: torch.ops.aten.mse_loss(a[0], a), 7 * 5),
    ],
)
def test_squares_are_separate(function, macs):
    assert sizes(function, (7, 5)) == {SQUARE: macs}


def test_scaled_additions_are_separate():
    assert sizes(lambda x, g, y: x + g[:, None] * y, (2, 7, 5), (2, 5), (2, 7, 5)) == {SCALED: 2 * 7 * 5}
    assert sizes(torch.addcmul, (7, 5), (7, 5), (7, 5)) == {SCALED: 7 * 5}
    # Products of different pairs of tensors are no terms of one sum.
    assert sizes(lambda x, y, v, w, c: (c + (-x) * v) + (-y) * w, *[(5, 5)] * 5) == {SCALED: 2 * 25}
    assert sizes(lambda x, w, c: (c + x[:, :5] * -w) + x[:, 1:] * w.triu(), (5, 6), (5, 5), (5, 5)) == {SCALED: 2 * 25}


def test_experts_in_a_loop():
    found = sizes(experts_in_a_loop, (7, 5), (7, 3), (3, 5, 5))
    assert found == {"dispatched": 3 * 7 * 5 * 5, CONTRACTION: 3 * 7 * 5}


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(
    ("function", "shapes", "macs"),
    [
        (lambda x, w: (x[:, :, None] * w).sum(1), [(7, 13), (13, 11)], 7 * 13 * 11),
        (lambda x, w: x @ w, [(7, 13), (13, 11)], 7 * 13 * 11),
        (lambda y, g: (y * g[..., None]).sum(1), [(7, 3, 11), (7, 3)], 7 * 3 * 11),
        (lambda y, g: torch.einsum("nkd,nk->nd", y, g), [(7, 3, 11), (7, 3)], 7 * 3 * 11),
        (torch.mv, [(7, 13), (13,)], 7 * 13),
        (torch.mv, [(7, 1), (1,)], 7),
        (torch.mv, [(1, 13), (13,)], 13),
        (lambda b, a, x: torch.addmv(b, a, x), [(7,), (7, 1), (1,)], 7),
        (torch.dot, [(13,), (13,)], 13),
        (torch.vdot, [(13,), (13,)], 13),
        (torch.outer, [(7,), (13,)], 7 * 13),
    ],
)
def test_backward_is_twice_the_forward(function, shapes, macs, device):
    found = sizes(function, *shapes, device=device, backward=True)
    assert sum(found.values()) == 3 * macs


class Combine(nn.Module):
    """MoA's weighted sum of its heads' outputs, in two spellings."""

    def __init__(self, by_einsum):
        super().__init__()
        self.by_einsum = by_einsum

    def forward(self, y, g):
        return torch.einsum("nkd,nk->nd", y, g) if self.by_einsum else (y * g[..., None]).sum(1)


@pytest.mark.parametrize("by_einsum", [False, True])
def test_einsum_and_sum_agree(by_einsum):
    model, inputs = Combine(by_einsum), (torch.ones(7, 3, 11), torch.ones(7, 3))
    assert_macs(model, *inputs, expected="N*K*d", elementwise="include", N=7, K=3, d=11)
    found = count_macs(model, *inputs, elementwise="include")
    assert found.macs == found.ledger.group(lambda entry: entry.path, of="size")[""] == 231
    assert found.headline == "with elementwise contractions"


def test_elementwise_policies():
    model, inputs = Combine(by_einsum=False), (torch.ones(7, 3, 11), torch.ones(7, 3))
    reported = count_macs(model, *inputs)
    assert (reported.macs, reported.with_elementwise, reported.headline) == (0, 231, "dispatched contractions")
    assert [part.text() for part in reported.elementwise] == ["mul, summed by sum on 7x3x11 7x3x1 (231 in the model)"]
    with pytest.raises(AssertionError) as raised:
        assert_macs(model, *inputs, expected=231)
    assert str(raised.value).splitlines() == [
        "0 multiply-accumulates (dispatched contractions), expected 231 = 231 (-231)",
        "  not in it: mul, summed by sum on 7x3x11 7x3x1 (231 in the model)",
    ]
    with pytest.raises(
        ElementwiseError, match=r"mul, summed by sum on 7x3x11 7x3x1 \(231 in the model\); elementwise="
    ):
        count_macs(model, *inputs, elementwise="refuse")
    with pytest.raises(ValueError, match="'all' is none of report, include, refuse"):
        count_macs(model, *inputs, elementwise="all")


def test_long_recurrence():
    def recurrence(a, x, c):
        h, out = torch.zeros_like(x[0]), 0
        for step in x:
            h = a * h + step
            out = out + h * c
        return out.sum(-1)

    found = sizes(recurrence, (2, 5), (3000, 2, 5), (5,))
    assert found == {CONTRACTION: 3000 * 2 * 5, SCALED: 3000 * 2 * 5}
