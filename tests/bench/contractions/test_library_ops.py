"""Sparse, nested and library operators, and formulas registered with torch, against MACs by hand."""

import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import register_flop_formula

from headcount.bench.api.count import count_macs
from headcount.bench.contractions.classify import UnsupportedError
from tests.bench.contractions.function_modules import module

PLACES = torch.tensor([[0, 1, 2], [1, 2, 4]])
ROWS, COLUMNS = torch.tensor([0, 1, 2, 3]), torch.tensor([1, 2, 4])
aten = torch.ops.aten


def coo(values):
    return torch.sparse_coo_tensor(PLACES, values, (3, 7))


def csr(values):
    return torch.sparse_csr_tensor(ROWS, COLUMNS, values, (3, 7))


CASES = {
    "coo": (lambda v, x: coo(v) @ x, [(3,), (7, 5)], 3 * 5),
    "csr": (lambda v, x: csr(v) @ x, [(3,), (7, 5)], 3 * 5),
    "csr-mean": (lambda v, x: torch.sparse.mm(csr(v), x, "mean"), [(3,), (7, 5)], 3 * 5),
    "csr-largest": (lambda v, x: torch.sparse.mm(csr(v), x, "amax"), [(3,), (7, 5)], 0),
    "csr-vector": (lambda v, b, x: torch.addmv(b, csr(v), x), [(3,), (3,), (7,)], 3),
    "coo-hspmm": (lambda v, x: torch.hspmm(coo(v), x), [(3,), (7, 5)], 3 * 5),
    "sparse-softmax": (lambda v: torch.sparse.softmax(coo(v), 1).to_dense(), [(3,)], 0),
    "distances-by-product": (torch.cdist, [(31, 5), (29, 5)], 31 * 29 * (5 + 2)),
    "distances-one-by-one": (torch.cdist, [(7, 5), (11, 5)], 0),
    "cross": (torch.linalg.cross, [(7, 3), (7, 3)], 7 * 3 * 2),
    "conv2d": (lambda x, w: aten._slow_conv2d_forward(x, w, [2, 2], None, [1, 1], [0, 0]),
               [(2, 3, 5, 5), (7, 3, 2, 2)], 2 * 4 * 4 * 3 * 2 * 2 * 7),
    "conv3d": (lambda x, w: aten.slow_conv3d_forward(x, w, [2, 2, 2], None, [1, 1, 1], [0, 0, 0]),
               [(2, 3, 4, 4, 4), (7, 3, 2, 2, 2)], 2 * 27 * 3 * 8 * 7),
    "transposed": (lambda x, w: aten.slow_conv_transpose2d(x, w, [2, 2], None, [1, 1]),
                   [(2, 3, 5, 5), (3, 7, 2, 2)], 2 * 5 * 5 * 3 * 7 * 2 * 2),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("name", CASES)
def test_library_operation(name):
    function, shapes, macs = CASES[name]
    assert count_macs(module(function), *(torch.ones(shape) for shape in shapes)).macs == macs


OPERATORS = sorted({name[6:].partition(".")[0] for name in torch._C._dispatch_get_all_op_names() if "::__" in name})
"""Operations of aten with names of Python's operators."""


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])
@pytest.mark.parametrize("second", [torch.tensor([1, 2]), 1], ids=["tensor", "number"])
@pytest.mark.parametrize("name", OPERATORS)
def test_python_operators_have_no_products(name, second, dtype):
    second = second.to(dtype) if isinstance(second, torch.Tensor) else second
    called = module(lambda x: getattr(aten, name)(x.clone(), second))
    assert count_macs(called, torch.tensor([8, 9], dtype=dtype)).macs == 0


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_scaled_product(device):
    def product(x, w):
        one = torch.ones(1, device=device)
        x, w = (values.to(torch.float8_e4m3fn) for values in (x, w))
        by = F.ScalingType.TensorWise
        return F.scaled_mm(x, w.mT, one, by, one, by, output_dtype=torch.bfloat16)

    x, w = (torch.ones(shape, device=device) for shape in ((16, 32), (48, 32)))
    assert count_macs(module(product), x, w).macs == 16 * 32 * 48


def test_unpacked_int4_weights_are_counted():
    def product(packed, x):
        return x @ torch.stack([packed & 15, packed >> 4], -1).flatten(1).float().mT

    assert count_macs(module(product), torch.ones(7, 13, dtype=torch.uint8), torch.ones(3, 26)).macs == 3 * 26 * 7


def make_nested(rows):
    return torch.nested.as_nested_tensor(list(rows.split([2, 3])))


def make_jagged(rows, ends):
    return torch.nested.nested_tensor_from_jagged(rows, ends)


def sparse_rows(values):
    """Return a sparse matrix (3, 7) of full rows, two with the same index."""
    return torch.sparse_coo_tensor(torch.tensor([[0, 1, 1]]), values, (3, 7))


SUMMED = {
    "nested-padded": (lambda a, b: (make_nested(a) * make_nested(b)).to_padded_tensor(0.0).sum(1), [(5, 7)] * 2, 5 * 7),
    "nested-halves": (lambda a, b: (make_nested(a) / 2).to_padded_tensor(0.0).sum(1), [(5, 7)] * 2, 0),
    "jagged-padded": (lambda a, b, n: (make_jagged(a, n) * make_jagged(b, n)).to_padded_tensor(0.0).sum(1),
                      [(5, 7), (5, 7), torch.tensor([0, 2, 5])], 5 * 7),
    "jagged-summed": (lambda a, b, n: (make_jagged(a, n) * make_jagged(b, n)).sum(1),
                      [(5, 7), (5, 7), torch.tensor([0, 2, 5])], 5 * 7),
    "coo": (lambda a, b: (coo(a) * coo(b)).to_dense().sum(1), [(3,), (3,)], 3),
    "coo-by-dense": (lambda a, b: (coo(a) * b).to_dense().sum(1), [(3,), (3, 7)], 3),
    "csr": (lambda a, b: (csr(a) * csr(b)).to_dense().sum(1), [(3,), (3,)], 3),
    "coo-sum": (lambda a, b: torch.sparse.sum(coo(a) * coo(b), 1).to_dense(), [(3,), (3,)], 3),
    "coo-values": (lambda a, b: (coo(a).coalesce() * coo(b).coalesce()).coalesce().values().sum(), [(3,), (3,)], 3),
    "coo-not-summed": (lambda a, b: (coo(a) * coo(b)).to_dense(), [(3,), (3,)], 0),
    "made-sparse": (lambda a, b: (a * b).to_sparse().to_dense().sum(1), [(3, 7)] * 2, 3 * 7),
    "coo-of-products": (lambda a, b: coo(a * b).to_dense().sum(1), [(3,), (3,)], 3),
    "csr-of-products": (lambda a, b: csr(a * b).to_dense().sum(1), [(3,), (3,)], 3),
    "same-rows": (lambda a, b: sparse_rows(a * b).coalesce().to_dense(), [(3, 7)] * 2, 3 * 7),
    "other-rows": (lambda a, b: (a * b).to_sparse().coalesce().to_dense(), [(3, 7)] * 2, 0),
    "storage": (lambda a, b: a.new_empty(0).set_((a * b).untyped_storage(), 0, (3, 7), (7, 1)).sum(1),
                [(3, 7)] * 2, 3 * 7),
    "storage-of-tensor": (lambda a, b: a.new_empty(0).set_(a * b).sum(1), [(3, 7)] * 2, 3 * 7),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Sparse", "ignore:The PyTorch API of nested")
@pytest.mark.parametrize("name", SUMMED)
def test_elementwise_product_is_followed(name):
    function, shapes, macs = SUMMED[name]
    inputs = (torch.ones(s) if isinstance(s, tuple) else s for s in shapes)
    found = count_macs(module(function), *inputs)
    assert (found.dispatched, found.with_elementwise) == (0, macs)


ATTENTION = "Tensor q, Tensor k, Tensor v"
PACKED = ", Tensor? cu_q, Tensor? cu_k, int max_q, int max_k"
KERNELS = {
    "flash_attn": (
        f"flash_attn::_flash_attn_forward({ATTENTION}, float p, float scale, bool causal, int left, int right,"
        " float softcap, Tensor? alibi, bool weights) -> Tensor",
        (0.0, 1.0, True, -1, -1, 0.0, None, False),
    ),
    "xformers_flash": (
        f"xformers_flash::flash_fwd({ATTENTION}, Tensor? cu_q, Tensor? cu_k, Tensor? used, int max_q, int max_k,"
        " float p, float scale, bool causal, int left, int right, bool weights, Tensor? tables) -> Tensor",
        (None, None, None, 7, 11, 0.0, 1.0, False, -1, -1, False, None),
    ),
    "xformers": (
        f"xformers::efficient_attention_forward_cutlass({ATTENTION}, Tensor? bias, Tensor? cu_q, Tensor? cu_k,"
        " int? max_q, int? max_k, float p, int mask, bool sums=False) -> Tensor",
        (None, None, None, None, None, 0.0, 0),
    ),
    "natten": (
        f"natten::fmha_forward({ATTENTION}, bool causal, float scale, int q_tile, int kv_tile{PACKED}) -> Tensor",
        (False, 1.0, 8, 8, None, None, 7, 11),
    ),
    "natten-hopper": (
        f"natten::hopper_fmha_forward({ATTENTION}, float scale, int q_tile, int kv_tile, int schedule) -> Tensor",
        (1.0, 8, 8, 0),
    ),
    "natten-blackwell": (
        f"natten::blackwell_fmha_forward({ATTENTION}, bool causal, float scale, int q_tile, int kv_tile,"
        f" bool persistent{PACKED}) -> Tensor",
        (False, 1.0, 8, 8, True, None, None, 7, 11),
    ),
}


@pytest.fixture
def define_operator():
    """Return a function that defines an operator of a library that is not installed."""
    libraries = []

    def define(schema):
        namespace, _, rest = schema.partition("::")
        libraries.append(torch.library.Library(namespace, "FRAGMENT"))
        libraries[-1].define(rest)
        name = rest.partition("(")[0]
        libraries[-1].impl(name, lambda first, *others: first.clone(), "CompositeExplicitAutograd")
        return getattr(getattr(torch.ops, namespace), name)

    yield define
    for library in libraries:
        library._destroy()


@pytest.mark.parametrize("name", KERNELS)
def test_attention_kernel_counts_all_scores(define_operator, name):
    """Queries (B, T, h, d) of 4 heads on 2 key and value heads."""
    schema, others = KERNELS[name]
    operator = define_operator(schema)
    inputs = torch.ones(3, 7, 4, 5), torch.ones(3, 11, 2, 5), torch.ones(3, 11, 2, 5)
    found = count_macs(module(lambda q, k, v: operator(q, k, v, *others)), *inputs)
    assert found.by_kind() == {"scores": 3 * 4 * 7 * 11 * 5, "values": 3 * 4 * 7 * 11 * 5}


@pytest.mark.parametrize("name", ["xformers_flash", "natten", "natten-blackwell"])
def test_packed_sequences_are_unsupported(define_operator, name):
    schema, others = KERNELS[name]
    operator, lengths = define_operator(schema), torch.tensor([0, 3, 7], dtype=torch.int32)
    packed = [lengths if value is None else value for value in others]
    inputs = [torch.ones(1, 7, 4, 5)] * 3
    with pytest.raises(UnsupportedError, match=f"{name.partition('-')[0]}[.].* on 1x7x4x5 1x7x4x5 1x7x4x5"):
        count_macs(module(lambda q, k, v: operator(q, k, v, *packed)), *inputs)


SAVED = "Tensor out, Tensor d_out, Tensor lse"


@pytest.mark.parametrize(
    ("schema", "order"),
    [
        (f"flash_attn::_flash_attn_backward(Tensor d_out, {ATTENTION}, Tensor out, Tensor lse)", "qqkkql"),
        (f"natten::fmha_backward({ATTENTION}, {SAVED})", "qkkqql"),
        (f"natten::hopper_fmha_backward({ATTENTION}, {SAVED})", "qkkqql"),
        (f"natten::blackwell_fmha_backward({ATTENTION}, {SAVED})", "qkkqql"),
    ],
)
def test_attention_kernel_backward(define_operator, schema, order):
    operator = define_operator(f"{schema} -> Tensor")
    tensors = {"q": torch.ones(3, 7, 4, 5), "k": torch.ones(3, 11, 2, 5), "l": torch.ones(3, 4, 7)}
    found = count_macs(module(operator), *(tensors[letter] for letter in order))
    assert found.macs == 5 * 3 * 4 * 7 * 11 * 5


TILES = "int[] q_shape, int[] kv_shape, int[] qkv_shape, int[] q_tile, int[] kv_tile"


@pytest.mark.parametrize(("passed", "products"), [("forward", 2), ("backward", 5)])
@pytest.mark.parametrize("kernel", ["", "hopper_", "blackwell_"])
def test_neighborhood_attention(define_operator, kernel, passed, products):
    """4 heads of 5 at 7 x 11 positions, 3 x 5 keys each, from 2 samples.

    Tiled kernels have the samples' 6 dilation groups in the batch, in padded tiles.
    """
    saved = "" if passed == "forward" else ", Tensor out, Tensor d_out, Tensor lse"
    name = f"{kernel}na2d_{passed}"
    operator = define_operator(
        f"natten::{name}({ATTENTION}{saved}, int[] kernel, int[] stride, int[] dilation, bool[] causal, float scale"
        + (f", {TILES})" if kernel else ")")
        + " -> Tensor"
    )
    tiles = [[4, 4], [4, 4], [7, 11], [2, 2], [2, 2]] if kernel else []
    x = torch.ones(2 * 6, 16, 4, 5) if kernel else torch.ones(2, 7, 11, 4, 5)
    given = [[3, 5], [1, 1], [2, 3], [False, False], 1.0, *tiles]
    found = count_macs(module(lambda *of: operator(*of, *given)), *[x] * (6 if saved else 3))
    assert found.macs == products * (2 * 4 * 7 * 11) * (3 * 5) * 5


@pytest.mark.parametrize(("name", "times"), [("fwd", 1), ("bwd", 2)])
def test_causal_convolution_per_channel(define_operator, name, times):
    operator = define_operator(f"DaoAILab::_causal_conv1d_{name}_cpp(Tensor x, Tensor weight, Tensor? bias) -> Tensor")
    found = count_macs(module(lambda x, w: operator(x, w, None)), torch.ones(3, 5, 7), torch.ones(5, 4))
    assert found.macs == times * 3 * 5 * 7 * 4


@pytest.fixture(scope="module")
def operator():
    library = torch.library.Library("headcount_tests", "FRAGMENT")
    library.define("mm(Tensor a, Tensor b) -> Tensor")
    library.impl("mm", lambda a, b: a.new_zeros(a.shape[0], b.shape[1]), "CompositeExplicitAutograd")
    yield torch.ops.headcount_tests.mm
    library._destroy()


@pytest.mark.parametrize("extra", [0, 1])
def test_registered_formula_is_halved(operator, monkeypatch, extra):
    monkeypatch.setattr("torch.utils.flop_counter.flop_registry", dict(torch.utils.flop_counter.flop_registry))

    @register_flop_formula(operator)
    def flops(a, b, *, out_shape=None, **_):
        return 2 * a[0] * a[1] * b[1] + extra

    inputs = torch.ones(7, 13), torch.ones(13, 11)
    if extra:
        with pytest.raises(ValueError, match="headcount_tests.mm gives 2,003 FLOPs, which is odd"):
            count_macs(module(operator), *inputs)
    else:
        found = count_macs(module(operator), *inputs)
        assert found.macs == 7 * 13 * 11
        assert [line.source for line in found.audit] == ["torch.utils.flop_counter"]
