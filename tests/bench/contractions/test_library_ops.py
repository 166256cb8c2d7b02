"""Sparse constructors, distances, slow convolutions and formulas registered with torch, against integers by hand."""

import pytest
import torch
from torch.utils.flop_counter import register_flop_formula

from headcount.bench.count import count_macs
from tests.bench.contractions.written import module

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
        assert count_macs(module(operator), *inputs).macs == 7 * 13 * 11
