"""Short programs against MACs computed by hand, on cpu and meta."""

from math import prod

import pytest
import torch
import torch.nn.functional as F
from torch import _refs as refs
from torch import nn

from headcount.bench.api.assertions import assert_macs
from headcount.bench.api.count import count_macs
from headcount.bench.contractions.classify import UnsupportedError
from headcount.bench.contractions.elementwise import CONTRACTION, SCALED, SQUARE
from headcount.bench.counting.run import ElementwiseError, count_contractions
from headcount.bench.trace.record import record
from tests.bench.contractions.function_modules import module

pytestmark = pytest.mark.filterwarnings(
    "ignore:The PyTorch API of nested", "ignore:index_reduce", "ignore:The reduce argument of torch.scatter"
)
DEVICES = pytest.mark.parametrize("device", ["cpu", "meta"])


def count(function, shapes, device="cpu", backward=False):
    """Return the count of ``function`` on inputs of ones with the given shapes; a tensor is passed as it is."""
    inputs = [torch.ones(s, device=device) if isinstance(s, tuple) else s.to(device) for s in shapes]
    return count_contractions(record(module(function), inputs, backward=backward))


def macs_by_kind(function, *shapes, **options):
    """Return multiplications by elementwise kind, and those of contractions as "dispatched"."""
    found = count(function, shapes, **options)
    out = {"dispatched": found.macs} if found.macs else {}
    for part in found.elementwise:
        out[part.kind] = out.get(part.kind, 0) + part.size
    return out


def unrolled_trilinear(dim):
    """Return the product of (N, I), (O, I, J) and (N, J) with ``dim`` unrolled."""
    return lambda x, w, y: torch.ops.aten._trilinear(x, w, y, [1, 3], [0], [1, 2], [2, 3], unroll_dim=dim)


def without_function_mode(x, w):
    with torch._C.DisableTorchFunction():
        return F.conv1d(x, w)


def add_in_profiler(a):
    with torch.profiler.record_function("here"):
        return a + 1


CALLS = [
    (torch.matmul, [(3, 1, 7, 5), (11, 5, 13)], 3 * 11 * 7 * 5 * 13),
    (lambda a, b: torch.einsum("t b, bs", a, b), [(7, 1), (1, 5)], 7 * 5),
    (torch.addbmm, [(7, 13), (3, 7, 5), (3, 5, 13)], 3 * 7 * 5 * 13),
    (lambda a, b: torch.einsum("ab,bc,ad->cd", a, b, a), [(7, 5), (5, 13)], 7 * 5 * 13 + 7 * 13 * 5),
    (without_function_mode, [(2, 3, 9), (5, 3, 3)], 2 * 7 * 3 * 3 * 5),
    (lambda x, w: torch.conv_tbc(x, w, w[0, 0]), [(9, 2, 3), (3, 3, 5)], 2 * 7 * 3 * 3 * 5),
    (lambda a, b: torch._foreach_mul([a, a], [b, b])[1].sum(-1), [(7, 13), (7, 13)], 7 * 13),
    (lambda a, b: torch.addr(a.new_zeros(7, 11), a, b), [(7,), (11,)], 7 * 11),
    (lambda theta: F.affine_grid(theta, (2, 3, 5, 7), align_corners=False), [(2, 2, 3)], 2 * 5 * 7 * 2 * 3),
    # i is summed before the product with j, unless i is unrolled
    *((unrolled_trilinear(dim), [(7, 5), (11, 5, 3), (7, 3)], 7 * 11 * 3 * (5 if dim == 2 else 6)) for dim in range(4)),
    # torch.refs, which run prims
    (lambda a, b: refs.sum(refs.mul(a, b), 1), [(7, 13)] * 2, 7 * 13),
    (lambda a, b: refs.sum(refs.mul(refs.unsqueeze(a, 1), refs.unsqueeze(b, 0)), -1), [(7, 13)] * 2, 7 * 7 * 13),
    (lambda a, b: refs.sum(refs.mul(refs.transpose(a, 0, 1), refs.transpose(b, 0, 1)), 0), [(7, 13)] * 2, 7 * 13),
    (lambda a, b: refs.softmax(refs.add(a, b), -1), [(7, 13)] * 2, 0),
    (lambda a, b: refs.native_layer_norm(a, (13,), b[0], b[1], 1e-5)[0], [(7, 13)] * 2, 0),
    (lambda a, b: refs.special.zeta(refs.special.erfcx(refs.erfinv(a)), b), [(7, 13)] * 2, 0),
    # supported, and free of contractions
    (
        lambda a: torch.segment_reduce(a, "sum", lengths=torch.tensor([40, 51], device=a.device), unsafe=True),
        [(91,)],
        0,
    ),
    (lambda a: torch.special.bessel_j0(a) + torch.special.ndtr(a) + torch.special.entr(a), [(7, 13)], 0),
    (lambda a: torch._chunk_cat([a, a], 0, 2), [(7, 13)], 0),
    (lambda a: torch._foreach_add([a, a], 1.0)[0], [(7, 13)], 0),
    (add_in_profiler, [(7, 13)], 0),
]


@DEVICES
@pytest.mark.parametrize(("function", "shapes", "macs"), CALLS)
def test_call_counts(function, shapes, macs, device):
    assert count(function, shapes, device).with_elementwise == macs


def test_prims_fft_raises():
    with pytest.raises(UnsupportedError, match=r"prims.fft_c2c on"):
        count_macs(module(refs.fft.fft), torch.ones(7, 13, dtype=torch.complex64))


def test_grouped_mm_of_blocks():
    x, w = torch.ones(3, 16, 32, dtype=torch.bfloat16), torch.ones(3, 32, 48, dtype=torch.bfloat16)
    (entry,) = count_macs(module(torch._grouped_mm), x, w).ledger.entries
    assert (entry.kind, dict(entry.dims)) == ("expert_linear", {"b": 3, "m": 16, "i": 32, "j": 48})


@pytest.mark.parametrize(
    ("shape", "used", "kind"),
    [
        ((5, 11), lambda w: w, "linear"),
        ((5, 13), lambda w: w[:, :11], "linear"),
        ((3, 5, 11), lambda w: w[1], "linear"),
        # a router selects
        ((3, 5, 11), lambda w: (w.sum((1, 2)).topk(1), w[1])[1], "expert_linear"),
        ((1, 5, 11), lambda w: w[0], "linear"),
    ],
)
def test_expert_linear_is_a_slice(shape, used, kind):
    layer = module(lambda x: x @ used(layer.weight))
    layer.weight = nn.Parameter(torch.ones(shape))
    assert count_macs(layer, torch.ones(7, 5)).by_kind() == {kind: 7 * 5 * 11}


# Elementwise products


def index(rows, columns, like=None):
    return torch.arange(rows, device=None if like is None else like.device) % columns


def scatter_reduce(y, g, i, how):
    return zeros(y).scatter_reduce(0, i[:, None].expand(13, 11), y * g, reduce=how)


def experts_in_a_loop(x, g, w):
    out = torch.zeros_like(x)
    for e in range(g.shape[1]):
        out += g[:, e : e + 1] * (x @ w[e])
    return out


def overlap_add(x, w):
    out = torch.zeros(len(x), x.shape[1] + len(w) - 1, device=x.device)
    for k in range(len(w)):
        out[:, k : k + x.shape[1]] += x * w[k]
    return out


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


def zeros(y):
    return torch.zeros_like(y)[:7]


def join_nested(x, y):
    nested = torch.nested.nested_tensor([torch.ones(3, 5), torch.ones(2, 5)])
    torch.cat([nested, nested])
    return (x * y).sum()


def write_part(x, y, z, w):
    state = x * y
    state[:, :2] = (z * w)[:, :2]
    return state


def assign_rows(x, y):
    out = torch.zeros(7, 5, device=x.device)
    for n in range(7):
        out[n] = x[n] * y[n]
    return out


def add_rows(x, y):
    out = torch.zeros(7, 5, device=x.device)
    for n in range(7):
        out[n] += x[n] * y[n]
    return out


def complexes(*shape):
    return torch.ones(shape, dtype=torch.complex64)


def rotate(x):
    angles = torch.arange(7.0, device=x.device)[:, None] * 10.0 ** -torch.arange(4.0, device=x.device)
    cos, sin = torch.cat([angles, angles], -1).cos(), torch.cat([angles, angles], -1).sin()
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat([-right, left], -1) * sin


def write_rows(y, g, i):
    out = torch.zeros_like(y)
    out[i] = y * g
    return out


SCATTERED, SCATTERED_COLUMN = ([(13, 11), rows, index(13, 7)] for rows in ((13,), (13, 1)))

SUMMED = [
    ("over-no-index-by-number", lambda x, w: (x * w).sum(()), [(7, 13), (13,)], 7 * 13),
    ("picked", lambda x, w, i: (x * w).index_select(0, i).sum(-1), [(7, 13), (13,), index(5, 7)], 7 * 13),
    ("nansum", lambda x, w: (x * w).nansum(-1), [(7, 13), (13,)], 7 * 13),
    ("scaled-first", lambda x, w: (-2 * (x * w) / 3).sum(-1), [(7, 13), (13,)], 7 * 13),
    ("scatter_add", lambda y, g, i: zeros(y).scatter_add(0, i[:, None].expand(13, 11), y * g),
     SCATTERED_COLUMN, 13 * 11),
    ("index_put-by-name", lambda y, g, i: torch.ops.aten.index_put(
        self=zeros(y), indices=(i,), values=y * g[:, None], accumulate=True), SCATTERED, 13 * 11),
    ("index_put-by-its-kernel",
     lambda y, g, i: torch._index_put_impl_(zeros(y), [i], y * g[:, None], accumulate=True), SCATTERED, 13 * 11),
    ("fold", lambda x, w: F.fold(x * w, (1, 9), (1, 3)), [(2, 15, 7), (15, 1)], 2 * 15 * 7),
    ("two-terms-in-one-call", lambda a, b, c, d: torch.addcmul(a * b, c, d), [(7, 5)] * 4, 2 * 7 * 5),
    ("lerp", torch.lerp, [(7, 5), (7, 5), (7, 5)], 7 * 5),
    # decay, read, update and output of the state
    ("gated-delta-rule", gated_delta_rule, [(2, 3, 4, 5), (2, 3, 4, 5), (2, 3, 4, 7), (2, 3, 4), (2, 3, 4)],
     4 * 2 * 3 * 4 * 5 * 7),
    ("in-the-other-branch", lambda x, a, b, c: torch.where(x > 0, c, a * b).sum(1), [(7, 5)] * 4, 7 * 5),
    ("padded-operand", lambda x, w: (F.pad(x.expand(7, 5), (0, 3)) * w).sum(1), [(7, 1), (7, 8)], 7 * 8),
    ("running-sum-expanded", lambda x, w: (x.expand(7, 5).cumsum(1) * w).sum(1), [(7, 1), (7, 5)], 7 * 5),
    ("trace", lambda x, w: (x * w).trace(), [(7, 7), (7, 7)], 7 * 7),
    ("segments", lambda a, b, n: torch.segment_reduce(a * b, "sum", lengths=n, unsafe=True),
     [(7,), (7,), torch.tensor([3, 4])], 7),
    ("scatter_reduce-mean", lambda y, g, i: scatter_reduce(y, g, i, "mean"), SCATTERED_COLUMN, 13 * 11),
    ("embedding-gradient", lambda i, v, w: torch.ops.aten.embedding_dense_backward(v * w, i, 3, -1, False),
     [index(13, 3), (13, 11), (13, 1)], 13 * 11),
    ("unfold-backward", lambda x, w: torch.ops.aten.unfold_backward(x * w, [11], 0, 3, 2), [(5, 3), (5, 3)], 5 * 3),
    ("adaptive-pool", lambda x, w: torch.ops.aten._adaptive_avg_pool2d(x * w, [1, 2]), [(2, 3, 5, 7)] * 2, 6 * 5 * 7),
    ("pool-3d", lambda x, w: F.avg_pool3d(x * w, 2), [(2, 3, 5, 7, 11)] * 2, 2 * 3 * 5 * 7 * 11),
    ("joined-nested", join_nested, [(3, 5)] * 2, 3 * 5),
    ("written-in-part", lambda *of: write_part(*of).sum(0), [(3, 5)] * 4, 2 * 3 * 5),
    # operations between product and sum
    *((f"{name}-then-sum", lambda a, b, move=move: move(a * b).sum(-1), [(7, 5)] * 2, 7 * 5) for name, move in {
        "scatter": lambda x: zeros(x).scatter(0, index(35, 7, x).view(7, 5), x),
        "masked_scatter": lambda x: zeros(x).masked_scatter(torch.ones(7, 5, device=x.device) > 0, x),
        "slice_scatter": lambda x: torch.zeros(9, 5, device=x.device).slice_scatter(x, 0, 1, 8),
        "select_scatter": lambda x: torch.zeros(7, 3, 5, device=x.device).select_scatter(x, 1, 2),
        "sort": lambda x: x.sort(-1)[0],
        "topk": lambda x: x.topk(3)[0],
    }.items()),
    # operations that move and sum
    *((f"{name}-sums", lambda a, b, add=add: add(a * b), [(7, 5)] * 2, 7 * 5) for name, add in {
        "index_reduce": lambda x: zeros(x).index_reduce(0, index(7, 3, x), x, "mean"),
        "scatter": lambda x: zeros(x).scatter(0, index(35, 3, x).view(7, 5), x, reduce="add"),
        "put": lambda x: zeros(x).put(index(35, 3, x).view(7, 5), x, accumulate=True),
        "embedding_bag": lambda x: F.embedding_bag(index(6, 7, x)[None], x, mode="sum"),
    }.items()),
    ("stacked-cumprod", lambda a, b: torch.stack([a, b]).cumprod(0)[1].sum(-1), [(7, 5)] * 2, 7 * 5),
    # MoE combine: y (N K, d) and gates in another order, as (N, K, d)
    ("combine-into-pairs", lambda y, g, i: zeros(y).view(2, 3, 5).index_put((i // 3, i % 3), y * g).sum(1),
     [(6, 5), (6, 1), index(6, 6)], 6 * 5),
    ("addcmul-of-a-constant", lambda a, b, x: torch.addcmul(a * b, x, torch.ones_like(x)).sum(), [(7, 5)] * 3, 7 * 5),
    ("reshaped-copy", lambda a, b: torch.view_copy(a * b, (5, 7)).sum(0), [(7, 5), (5,)], 7 * 5),
    ("permuted-copy", lambda a, b: torch.permute_copy(a * b, (1, 0)).sum(0), [(7, 5), (5,)], 7 * 5),
    ("overlap-add", overlap_add, [(2, 7), (3, 7)], 2 * 7 * 3),
    ("lists-added", lambda a, b: torch._foreach_add([a[0] * b[0]], [a[1] * b[1]])[0], [(2, 5)] * 2, 2 * 5),
    ("complex-of-products", lambda a, b: torch.complex(a * b, a).real.sum(1), [(7, 5)] * 2, 7 * 5),
    ("complex-viewed-as-real", lambda a, b: torch.view_as_real(a * b).sum(1),
     [complexes(7, 5), complexes(7, 5)], 7 * 5),
    ("rotary-angles", rotate, [(2, 7, 8)], 7 * 4),
]  # fmt: skip

NOT_SUMMED = [
    ("columns-do-not-carry-the-index", lambda a, b, c: (a.expand(7, 5) * b * c).sum(1), [(7, 1), (7, 1), (7, 5)]),
    ("parts-added-once", add_rows, [(7, 5)] * 2),
    ("indexed-axis-of-one", lambda a, b: (a * b)[None][index(1, 1, a)][None].sum(1), [(7, 5)] * 2),
    ("flattened-axes-of-one", lambda a, b: (a * b)[None, None].flatten(0, 1).sum(0), [(7, 5)] * 2),
    ("written-axis-of-one", lambda a, b: write_rows((a * b)[None], a.new_ones(()), index(1, 1, a))[None].sum(1),
     [(7, 5)] * 2),
    ("a-fill-copied", lambda a: (a * torch.empty_like(a).copy_(torch.full_like(a, 3))).sum(), [(7, 5)]),
    ("a-mask-of-truth-values", lambda a: (a * (a > 2)).sum(), [(7, 5)]),
    ("a-power-by-name", lambda a: torch.ops.aten.pow(self=a, exponent=3).sum(), [(7, 5)]),
    ("repeated-in-a-view", lambda x, g: (x[..., None] * g[:, None].expand(2, 7, 5).clone().view(2, 7, 5, 1)).mean(1),
     [(2, 7, 5), (2, 5)]),
    ("norm-of-order-three", lambda a: torch.ops.aten.norm(a, 3, [1]), [(7, 5)]),
    ("variance-of-one-number", lambda a: torch.var(a, 0, correction=0), [(1,)]),
    ("sum-of-equal-values", lambda x, w: (x.sum(1, keepdim=True).expand(7, 5) * w).sum(1), [(7, 5), (7, 5)]),
    ("size-one-index-in-a-view", lambda x, y: (x * y).view(2, 15).sum(1), [(2, 3, 1, 5), (2, 1, 1, 1)]),
    ("scatter-multiplies", lambda x, w: zeros(x).scatter(0, index(35, 3, x).view(7, 5), x * w, reduce="multiply"),
     [(7, 5)] * 2),
    ("lerp-by-a-number", lambda a, b: torch.lerp(a, b, 0.5), [(7, 5)] * 2),
    ("added-to-zeros", lambda x, w: torch.zeros_like(x).double() + x * w, [(7, 5)] * 2),
]  # fmt: skip

SQUARES = [
    ("by-square", lambda a: a.square().sum(), [(7, 5)], 7 * 5),
    ("of-a-clone", lambda a: (a * a.clone()).sum(), [(7, 5)], 7 * 5),
    ("norm", lambda a: a.norm(dim=-1), [(7, 5)], 7 * 5),
    ("var", lambda a: a.var(-1), [(7, 5)], 7 * 5),
    ("std_mean", lambda a: torch.std_mean(a, 1)[0], [(7, 5)], 7 * 5),
    ("norm-of-order-two", lambda a: torch.ops.aten.norm(a, 2), [(7, 5)], 7 * 5),
    ("mse_loss", lambda a: torch.ops.aten.mse_loss(a, a[0]), [(7, 5)], 7 * 5),
]
SCALINGS = [
    # products of different pairs of tensors are not terms of one sum
    ("two-pairs", lambda x, y, v, w, c: (c + (-x) * v) + (-y) * w, [(5, 5)] * 5, 2 * 25),
    ("two-weights", lambda x, w, c: (c + x[:, :5] * -w) + x[:, 1:] * w.triu(), [(5, 6), (5, 5), (5, 5)], 2 * 25),
    ("written-in-part", lambda *of: write_part(*of) + of[0], [(3, 5)] * 4, 2 * 3 * 5),
]
PROGRAMS = [
    pytest.param(function, shapes, {kind: size[0]} if size else {}, id=name)
    for kind, programs in {CONTRACTION: SUMMED, SQUARE: SQUARES, SCALED: SCALINGS, "": NOT_SUMMED}.items()
    for name, function, shapes, *size in programs
]


@DEVICES
@pytest.mark.parametrize(("function", "shapes", "expected"), PROGRAMS)
def test_elementwise_program(function, shapes, expected, device):
    assert macs_by_kind(function, *shapes, device=device) == expected


def test_summed_index_is_named():
    def dims(function, *shapes):
        return [part.dims for part in count(function, shapes).elementwise]

    assert dims(lambda x, w: (x * w).sum((1, 2)), (3, 5, 7), (5, 7)) == [{"m": 3, "i": 35}]
    # a row has only the second index, so sum(0) adds rows and sum(1) sums products
    assert dims(lambda x, y: assign_rows(x, y).sum(0), (7, 5), (7, 5)) == [{"m": 5}]
    assert dims(lambda x, y: assign_rows(x, y).sum(1), (7, 5), (7, 5)) == [{"m": 1, "i": 5}]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.complex64, torch.int64], ids=str)
def test_integers_are_not_counted(dtype):
    inputs = [torch.ones(7, 5, dtype=dtype) for _ in range(4)]
    is_counted = dtype != torch.int64
    assert macs_by_kind(lambda a, b, c, d: a * b + c * d, *inputs) == ({CONTRACTION: 70} if is_counted else {})
    assert macs_by_kind(lambda a: a.prod(0).sum(), inputs[0]) == ({CONTRACTION: 6 * 5} if is_counted else {})


LINEAR_IN_N = {
    "slices": (lambda p, y: sum(p[:, k : k + 1] * y[k] for k in range(3)), ["n3", "3nd"], "3nd"),
    "sum": (lambda p, y: (p[..., None] * y.transpose(0, 1)).sum(1), ["n3", "3nd"], "3nd"),
    "index_add": (
        lambda x, w: zeros(x).index_add(0, torch.zeros_like(x[:, 0]).int(), x * w[:, 1, None]),
        ["nd", "n3"],
        "nd",
    ),
    "two gates": (lambda g, x, y: g * x + (1 - g) * y, ["n1", "nd", "nd"], "2nd"),
    "outer": (lambda w, v: w[:, None] * v[None], ["n", "d"], "nd"),
    "outer, other order": (lambda v, w: v[:, None] * w[None], ["d", "n"], "nd"),
    "state": (lambda g, s, k, v: g[:, None, None] * s + k[:, :, None] * v[:, None], ["n", "ndd", "nd", "nd"], "2ndd"),
    "combine": (lambda y, g, i: write_rows(y, g, i).view(3, -1, 7).sum(1), ["3nd", "3n1"], "3nd"),
    "einsum": (lambda a, b: torch.einsum("ikc,jkc->ijc", a, b), ["nnd", "nnd"], "nnnd"),
    "gate": (lambda g, x: (g * x).sum(1), ["n1", "nd"], ""),
    "residual": (lambda x, g, y: x + g * y, ["nd", "n1", "nd"], "nd"),
}


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("name", LINEAR_IN_N)
def test_size_one_counts_like_other_sizes(name, n):
    function, shapes, expected = LINEAR_IN_N[name]
    letters = {"n": n, "d": 7}

    def numbers(text):
        return [letters.get(letter) or int(letter) for letter in text]

    given = [tuple(numbers(text)) for text in shapes]
    if name == "combine":
        given = [(3 * n, 7), (3 * n, 1), index(3 * n, 3 * n)]
    assert sum(macs_by_kind(function, *given).values()) == (prod(numbers(expected)) if expected else 0)


CONSTANTS = {
    "ones": (lambda m: m.new_ones(1, 5, 1), 0),
    "copied": (lambda m: m.new_ones(1, 1, 5).transpose(1, 2).contiguous(), 0),
    "padded": (lambda m: F.pad(torch.full_like(m, 2.0)[:, :3], (0, 0, 1, 1), value=2.0), 0),
    "numbers": (lambda m: torch.arange(5.0).view(1, 5, 1).to(m), 5 * 7),
    "input": (lambda m: m[:, :5].clone(), 5 * 7),
    "changed": (lambda m: torch.ones(1, 5, 1).mul_(m[:, :1]), 5 * 7),
    "written": (lambda m: torch.ones(1, 5, 1).copy_(m[:, :5]), 5 * 7),
}


@pytest.mark.parametrize(("make", "macs"), CONSTANTS.values(), ids=CONSTANTS)
def test_einsum_with_a_constant_is_a_scaling(make, macs):
    def product(m):
        return torch.einsum("bxd,byd->bxy", make(m), m)

    assert macs_by_kind(product, (1, 7, 1)) == ({"dispatched": macs} if macs else {})


def test_factors_of_one_element_are_scalings():
    layer = module(lambda x: (x * layer.scale * x.mean()).sum())
    layer.scale = nn.Parameter(torch.ones(1))
    assert not count_macs(layer, torch.ones(7, 5)).elementwise


WAYS = {
    "clone": torch.clone,
    "neg": torch.neg,
    "masked": lambda x: x.masked_fill(torch.ones(7, 5) < 0, 0),
    "moved": lambda x: x.t().t(),
    "copied into": lambda x: torch.empty(7, 5).copy_(x),
    "summed over one": lambda x: x[None].sum(0),
    "cumulated": lambda x: x[None].cumsum(0)[0],
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_products_are_followed_through_operation(way):
    def taps(x, w, c):
        return way(c + x[:, :5] * w) + x[:, 1:] * w

    square = (7, 5)
    assert macs_by_kind(lambda a, b, c, d: way(a * b) + c * d, *[square] * 4) == {CONTRACTION: 2 * 35}
    assert macs_by_kind(lambda a, c, d: way(a) + c * d, *[square] * 3) == {SCALED: 35}
    assert macs_by_kind(lambda a, b, c: way(a * b) + c, *[square] * 3) == {SCALED: 35}
    assert macs_by_kind(taps, (7, 6), square, square) == {CONTRACTION: 2 * 35}
    assert macs_by_kind(lambda a, b: way(a * b).sum(0), square, (5,)) == {}
    assert macs_by_kind(lambda a, b: way(a * b).sum(1), square, (5,)) == {CONTRACTION: 35}
    assert macs_by_kind(lambda y: (way(torch.full(square, 2.0)) * y).sum(), square) == {}
    assert macs_by_kind(lambda a, b: way(torch.full(square, 2.0)) + a * b, square, square) == {}


@pytest.mark.parametrize("dim", [0, 1, 2, -3, -2, -1])
def test_stacked_products(dim):
    def macs_of_sum(over):
        return macs_by_kind(lambda a, b, c, d: torch.stack([a * b, c * d], dim).sum(over), *[(7, 5), (5,)] * 2)

    # of the two indices that are not new, only the second is in both operands
    first, second = [axis for axis in range(3) if axis != dim % 3]
    assert macs_of_sum(dim % 3) == macs_of_sum(second) == {CONTRACTION: 2 * 35}
    assert macs_of_sum(first) == {}


def test_weighted_bincount():
    """bincount has no kernel on meta."""
    found = macs_by_kind(lambda a, b, i: torch.bincount(i, weights=a * b), (13,), (13,), index(13, 3))
    assert found == {CONTRACTION: 13}


def test_experts_in_a_loop():
    found = macs_by_kind(experts_in_a_loop, (7, 5), (7, 3), (3, 5, 5))
    assert found == {"dispatched": 3 * 7 * 5 * 5, CONTRACTION: 3 * 7 * 5}


@DEVICES
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
    found = macs_by_kind(function, *shapes, device=device, backward=True)
    assert sum(found.values()) == 3 * macs


def combine(y, g):
    """Return MoA's weighted sum of expert outputs."""
    return (y * g[..., None]).sum(1)


def test_elementwise_policies():
    model, inputs = module(combine), (torch.ones(7, 3, 11), torch.ones(7, 3))
    by_einsum = module(lambda y, g: torch.einsum("nkd,nk->nd", y, g))
    for layer in (model, by_einsum):
        assert_macs(layer, *inputs, expected="N*K*d", elementwise="include", N=7, K=3, d=11)
        found = count_macs(layer, *inputs, elementwise="include")
        assert found.macs == found.ledger.group(lambda entry: entry.path, of="size")[""] == 231
        assert found.headline == "elementwise products included"
    reported = count_macs(model, *inputs)
    assert (reported.macs, reported.with_elementwise, reported.headline) == (0, 231, "matrix products and convolutions")
    assert [(one.kind, one.dims) for one in reported.elementwise] == [(CONTRACTION, {"m": 77, "i": 3})]
    with pytest.raises(AssertionError) as raised:
        assert_macs(model, *inputs, expected=231)
    assert str(raised.value).splitlines() == [
        "0 multiply-accumulates (matrix products and convolutions), expected 231 = 231 (-231)",
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

    found = macs_by_kind(recurrence, (2, 5), (3000, 2, 5), (5,))
    assert found == {CONTRACTION: 3000 * 2 * 5, SCALED: 3000 * 2 * 5}
