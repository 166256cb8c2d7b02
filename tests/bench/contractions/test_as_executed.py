"""Counts of executed calls: failed calls, sparse operands, tensor subclasses, scripted and exported modules."""

from dataclasses import dataclass

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch import nn
from torch.utils._pytree import tree_map_only

from headcount.bench.api.count import count_macs
from headcount.bench.contractions.classify import UnsupportedError
from headcount.bench.counting.tools import read
from tests.bench.contractions.function_modules import Calls, module

pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested"),
]
M, K, N = 7, 13, 11
A, B = torch.ones(M, K), torch.ones(K, N)


def assert_explained(model, args, macs):
    """Assert the MACs, and that the trace explains the count of every counter."""
    found = read(model, args, label="called")
    assert found.macs == macs
    assert all(cell.explained for cell in found.tools), found.tools


SPARSE = torch.where((torch.arange(M * K) % 9 == 0).view(M, K), 1.0, 0.0)
STORED = int(SPARSE.sum())
"""Number of stored elements: every ninth."""


@pytest.mark.parametrize("layout", ["to_sparse_coo", "to_sparse_csr", "to_sparse_csc"])
@pytest.mark.parametrize("function", [torch.matmul, torch.mm, torch.sparse.mm])
def test_sparse_operand_counts_stored_elements(layout, function):
    found = count_macs(module(function), getattr(SPARSE, layout)(), B)
    assert found.macs == STORED * N == 121


@pytest.mark.parametrize("layout", ["to_sparse_coo", "to_sparse_csr"])
@pytest.mark.parametrize("sizes", [(0, K), (M, 0), (M, K)])
def test_sparse_operand_without_stored_elements_has_no_products(layout, sizes):
    found = count_macs(module(torch.mm), getattr(torch.zeros(sizes), layout)(), torch.ones(sizes[1], N))
    assert found.macs == 0


def test_sparse_vector_and_block_products():
    assert count_macs(module(torch.mv), SPARSE.to_sparse_csr(), B[:, 0]).macs == STORED
    blocks = torch.block_diag(torch.ones(3, 3), torch.ones(3, 3)).to_sparse_bsr((3, 3))
    assert count_macs(module(torch.mm), blocks, torch.ones(6, 5)).macs == 2 * 3 * 3 * 5
    with pytest.raises(UnsupportedError, match=r"mm on 7x13 13x11|sparse.*7x13 13x11"):
        count_macs(module(torch.mm), SPARSE.to_sparse_csr(), B.to_sparse_csr())


def test_unsupported_call_after_supported_one_raises():
    sparse = torch.eye(7).to_sparse_coo()
    with pytest.raises(UnsupportedError, match="mm on 7x7 7x7"):
        count_macs(module(lambda a: (torch.mm(a, a), torch.mm(sparse, sparse))), torch.ones(7, 7))


class LowRank(torch.Tensor):
    """A matrix (m, n) stored as factors (m, r) and (r, n)."""

    @staticmethod
    def __new__(cls, left, right):
        return torch.Tensor._make_wrapper_subclass(cls, (left.shape[0], right.shape[1]), dtype=left.dtype)

    def __init__(self, left, right):
        self.left, self.right = left, right

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        if operation is torch.ops.aten.mm.default:
            return args[0].left @ (args[0].right @ args[1])
        args, kwargs = tree_map_only(LowRank, lambda t: t.left @ t.right, (args, kwargs or {}))
        return operation(*args, **kwargs)


def test_subclass_counts_its_own_products():
    weight = LowRank(torch.ones(M, 2), torch.ones(2, K))
    assert count_macs(module(lambda x: torch.mm(weight, x)), B).macs == 2 * K * N + M * 2 * N


def test_grouped_mm_stops_at_last_offset():
    rows, width, columns = 16, 32, 16
    x, w = torch.ones(rows, width, dtype=torch.bfloat16), torch.ones(2, width, columns, dtype=torch.bfloat16)
    grouped = module(lambda x, w, ends: torch._grouped_mm(x, w, offs=ends))
    ends = torch.tensor([5, 12], dtype=torch.int32)
    assert count_macs(grouped, x, w, ends).macs == 12 * width * columns
    on_meta = count_macs(grouped, *(tensor.to("meta") for tensor in (x, w, ends)))
    assert on_meta.macs == rows * width * columns


def test_weighted_embedding_bag():
    index, table = torch.tensor([[0, 2], [1, 1], [3, 0]]), torch.ones(5, 11)
    bag = nn.functional.embedding_bag
    assert count_macs(module(lambda t: bag(index, t)), table).macs == 0
    weighted = module(lambda t, w: bag(index, t, mode="sum", per_sample_weights=w))
    assert count_macs(weighted, table, torch.ones(3, 2)).macs == 3 * 2 * 11
    assert count_macs(module(lambda t: bag(index, t)), table, backward=True).macs == 0
    both = count_macs(weighted, table, torch.ones(3, 2), backward=True)
    assert both.by_kind() == dict.fromkeys(["contraction", "contraction_dx", "contraction_dw"], 3 * 2 * 11)


def gradient_in_forward(a, b):
    with torch.enable_grad():
        x = a.detach().requires_grad_()
        return torch.autograd.grad((x @ b).sum(), x)[0]


def tangent(a, b):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(forward_ad.make_dual(a, torch.ones_like(a)) @ b).tangent


compiled = torch.compile(lambda a, b: a @ b, fullgraph=True)
CALLS = {
    "vmap": (lambda a, b: torch.vmap(lambda x: x @ b)(a), 1),
    "operator": (lambda a, b: torch.ops.aten.mm.default(a, b), 1),
    "compiled": (lambda a, b: compiled(a, b), 1),
    "gradient in forward": (gradient_in_forward, 2),
    # torch also multiplies the zero tangent of the other operand
    "tangent": (tangent, 3),
}


@pytest.mark.parametrize("name", CALLS)
def test_call_is_explained(name):
    function, times = CALLS[name]
    assert_explained(module(function), (A, B), times * M * K * N)


def test_vmap_of_convolution_is_explained():
    mapped = module(lambda x, w: torch.vmap(lambda x: nn.functional.conv1d(x[None], w))(x))
    assert_explained(mapped, (torch.ones(2, 3, 9), torch.ones(5, 3, 3)), 2 * 7 * 3 * 3 * 5)


@pytest.mark.parametrize("args", [(), (5,)])
def test_no_tensor_inputs(args):
    made = Calls(lambda m, rows=M: m.linear(torch.ones(rows, K)), linear=nn.Linear(K, N))
    assert_explained(made, args, (args or (M,))[0] * K * N)


def test_growing_cache_is_restored():
    def grow(m, x):
        m.seen.append(x)
        return m.linear(torch.cat(m.seen))

    model = Calls(grow, linear=nn.Linear(K, N), seen=[])
    assert_explained(model, (A,), M * K * N)
    assert model.seen == []


def test_long_loop_of_copies():
    def grow_by_copies(x):
        cache = x[:1]
        for _ in range(3000):
            cache = torch.cat([cache[:2], x[:1]])
        return cache @ x.mT

    assert count_macs(module(grow_by_copies), A).macs == 3 * K * M


LENGTHS = (3, 4)


def sequences(width, layout=torch.strided):
    return torch.nested.nested_tensor([torch.ones(n, width) for n in LENGTHS], layout=layout)


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_linear(layout):
    assert count_macs(nn.Linear(K, N), sequences(K, layout)).macs == sum(LENGTHS) * K * N


def test_nested_attention():
    def attend(x):
        heads = x.unflatten(-1, (3, 5)).transpose(1, 2)
        return nn.functional.scaled_dot_product_attention(heads, heads, heads)

    found = count_macs(module(attend), sequences(3 * 5, torch.jagged))
    assert found.macs == sum(2 * 3 * n * n * 5 for n in LENGTHS)
    attention = nn.MultiheadAttention(16, 2, batch_first=True).eval()
    found = count_macs(module(lambda x: attention(x, x, x, need_weights=False)[0]), sequences(16))
    assert found.macs == sum(n * 4 * 16**2 + 2 * n * n * 16 for n in LENGTHS)


def test_lazy_module_raises():
    with pytest.raises(ValueError, match=r"LazyLinear.*has no shapes before it has run: call the module once"):
        count_macs(nn.LazyLinear(N), A)


def test_padded_encoder_is_packed():
    width, heads, inner, layers = 16, 2, 24, 2
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, heads, inner, batch_first=True), layers)
    padding = torch.tensor([[False] * 7, [False] * 5 + [True] * 2])
    found = count_macs(encoder, torch.ones(2, 7, width), kwargs={"src_key_padding_mask": padding}).macs
    assert found == layers * sum(n * (4 * width**2 + 2 * width * inner) + 2 * n * n * width for n in (7, 5))


SCRIPTS = {
    "scripted": torch.jit.script,
    "traced": lambda module: torch.jit.trace(module, A),
    "frozen": lambda module: torch.jit.freeze(torch.jit.script(module)),
    "optimised": lambda module: torch.jit.optimize_for_inference(torch.jit.script(module)),
    "exported": lambda module: torch.export.export(module, (A,)).module(),
    "of a graph": torch.fx.symbolic_trace,
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripted_and_exported_modules(name):
    assert_explained(SCRIPTS[name](nn.Linear(K, N).eval()), (A,), M * K * N)


def test_dataclass_result():
    @dataclass
    class Out:
        y: torch.Tensor

    found = read(module(lambda a, b: Out(a @ b)), (A, B), label="fields")
    assert [cell.macs for cell in found.tools if cell.counter == "fvcore"] == [M * K * N]
    assert all(cell.explained for cell in found.tools)


def test_jetmoe_of_transformers_is_explained():
    """Models of other families are in tests/bench/targets/test_config_families.py."""
    transformers = pytest.importorskip("transformers", reason="the optional extra hf is not installed")
    d, inner, vocabulary, layers, experts, k, width = 48, 56, 61, 2, 5, 3, 8
    sizes = dict(hidden_size=d, intermediate_size=inner, num_hidden_layers=layers, vocab_size=vocabulary)
    routing = dict(kv_channels=width, num_key_value_heads=2, num_local_experts=experts, num_experts_per_tok=k)
    model = transformers.JetMoeForCausalLM(transformers.JetMoeConfig(**sizes, **routing))
    ids = torch.randint(vocabulary, (2, 11), generator=torch.Generator().manual_seed(0))
    # attention experts project to the heads and back; feed-forward experts are gated
    rows, kv = 2 * 11, 2 * width
    attention = rows * (d * experts + 2 * d * kv + k * 2 * d * kv) + 2 * rows * 11 * k * kv
    layer = attention + rows * (d * experts + k * 3 * d * inner)
    assert_explained(model, (ids,), layers * layer + rows * d * vocabulary)
