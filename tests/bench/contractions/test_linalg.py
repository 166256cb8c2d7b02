"""MACs of torch.linalg operations against textbook algorithms that count their own multiply-accumulates."""

import pytest
import torch
from torch import linalg

from headcount.bench.api.assertions import assert_macs
from headcount.bench.api.count import count_macs
from headcount.bench.contractions.classify import UnsupportedError
from tests.bench.contractions.function_modules import module

SIZES = [2, 3, 5, 7]
BATCH = 3


def lu(m, n):
    """Gaussian elimination: a[i][j] -= l[i][k] * a[k][j]."""
    return sum(1 for k in range(min(m, n)) for _ in range(k + 1, m) for _ in range(k + 1, n))


def cholesky(n):
    """l[i][j] = (a[i][j] - sum of l[i][k] * l[j][k] over k < j) / l[j][j]."""
    return sum(1 for i in range(n) for j in range(i + 1) for _ in range(j))


def substitution(n):
    """x[i] = (b[i] - sum of l[i][k] * x[k] over k < i) / l[i][i]."""
    return sum(1 for i in range(n) for _ in range(i))


def reflect(m, n, steps):
    """Reflect the columns behind k by (1, v): t = a[k] + sum of v[i] * a[i]; a[i] -= v[i] * t."""
    return sum(2 for k in range(steps) for _ in range(k + 1, n) for _ in range(k + 1, m))


def apply_reflections(m, steps, columns):
    """Apply the reflections (1, v) of ``steps`` to ``columns`` columns."""
    return sum(2 for k in range(steps) for _ in range(columns) for _ in range(k + 1, m))


def cholesky_inverse(n):
    """x[i][j] = -(sum of l[i][k] * x[k][j] over j <= k < i) / l[i][i]; then sum of x[k][i] * x[k][j] over k >= i."""
    inverse = sum(1 for i in range(n) for j in range(i) for _ in range(j + 1, i))
    return inverse + sum(1 for i in range(n) for _ in range(i + 1) for _ in range(i + 1, n))


def fft(n):
    """Complex products of X[k] = sum over r of w^(rk) * (transform of x[r::p])[k], the first without a factor."""
    if n == 1:
        return 0
    p = next(p for p in range(2, n + 1) if n % p == 0)
    return p * fft(n // p) + sum(1 for _ in range(n) for _ in range(1, p))


def square(n):
    return (torch.eye(n) * 9 + torch.ones(n, n)).expand(BATCH, n, n).clone()


CASES = {
    "cholesky": (linalg.cholesky, [], cholesky),
    "lu": (linalg.lu, [], lambda n: lu(n, n)),
    "lu-factor": (linalg.lu_factor, [], lambda n: lu(n, n)),
    "lu-wide": (lambda a: linalg.lu_factor(a[:, :2]), [], lambda n: lu(2, n)),
    "det": (linalg.det, [], lambda n: lu(n, n)),
    "inverse": (linalg.inv, [], lambda n: lu(n, n) + 2 * n * substitution(n)),
    "solve": (linalg.solve, [11], lambda n: lu(n, n) + 2 * 11 * substitution(n)),
    "solve-vector": (lambda a: linalg.solve(a, a[..., 0]), [], lambda n: lu(n, n) + 2 * substitution(n)),
    "lu-solve": (lambda a, b: linalg.lu_solve(*linalg.lu_factor(a), b), [11],
                 lambda n: lu(n, n) + 22 * substitution(n)),
    "triangular": (lambda a, b: linalg.solve_triangular(a, b, upper=True), [11], lambda n: 11 * substitution(n)),
    "triangular-right": (lambda a, b: linalg.solve_triangular(a, b.mT, upper=True, left=False), [11],
                         lambda n: 11 * substitution(n)),
    "old-triangular": (lambda a, b: torch.triangular_solve(b, a[0]), [11], lambda n: 11 * substitution(n)),
    "cholesky-solve": (lambda a, b: torch.cholesky_solve(b, a), [11], lambda n: 22 * substitution(n)),
    "qr": (lambda a: linalg.qr(a[..., :2]), [], lambda n: reflect(n, 2, 2) + reflect(n, 2, 2)),
    "qr-complete": (lambda a: linalg.qr(a[..., :2], "complete"), [],
                    lambda n: reflect(n, 2, 2) + reflect(n, n, 2)),
    "qr-r": (lambda a: linalg.qr(a, mode="r"), [], lambda n: reflect(n, n, n)),
    "ormqr": (lambda a, b: torch.ormqr(a[..., :2], a[..., 0, :2], b), [11], lambda n: apply_reflections(n, 2, 11)),
    "ormqr-right": (lambda a, b: torch.ormqr(a[..., :2], a[..., 0, :2], b.mT, left=False), [11],
                    lambda n: apply_reflections(n, 2, 11)),
    "cholesky-inverse": (torch.cholesky_inverse, [], cholesky_inverse),
    "householder": (lambda a: linalg.householder_product(a, a[..., 0, :2]), [], lambda n: reflect(n, n, 2)),
}  # fmt: skip
# torch 2.14 has no such operator any more
if hasattr(torch.ops.aten, "cholesky"):
    CASES["old-cholesky"] = (torch.cholesky, [], cholesky)


@pytest.mark.filterwarnings("ignore:torch")
@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", CASES)
def test_macs_match_algorithm(name, n, device):
    function, columns, macs = CASES[name]
    inputs = [square(n), *(torch.ones(BATCH, n, width) for width in columns)]
    found = count_macs(module(function), *(x.to(device) for x in inputs), formula_set="linalg")
    assert found.macs == BATCH * macs(n)


@pytest.mark.parametrize("shape", [(7, 3), (3, 7), (5, 5)])
def test_least_squares_match_algorithm(shape):
    """QR of the matrix or its transpose, reflections of the right-hand sides, then a triangular solve."""
    a, b = torch.ones(BATCH, *shape), torch.ones(BATCH, shape[0], 11)
    long, short = max(shape), min(shape)
    factors = reflect(long, short, short)
    for x, columns in (b, 11), (b[..., 0], 1):
        macs = BATCH * (factors + apply_reflections(long, short, columns) + columns * substitution(short))
        assert count_macs(module(linalg.lstsq), a, x, formula_set="linalg").macs == macs
    with pytest.raises(
        ValueError, match="linalg_lstsq with driver gelsd has no formula.*drivers with one: gels, gelsy"
    ):
        count_macs(module(lambda a, b: linalg.lstsq(a, b, driver="gelsd")), a, b, formula_set="linalg")


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("n", [*SIZES, 8, 12])
def test_fft_matches_recursion(n, device):
    """A real transform costs half; along the other axis it is complex, over n // 2 + 1 columns."""
    real, half = torch.ones(BATCH, 7, n, device=device), n // 2 + 1
    complex_x = torch.ones(BATCH, 7, n, dtype=torch.complex64, device=device)
    real_macs = BATCH * 7 * 2 * fft(n)
    columns = BATCH * half * 4 * fft(7)
    for function, x, macs in (
        (torch.fft.fft, complex_x, 2 * real_macs),
        (torch.fft.fft2, complex_x, 2 * real_macs + BATCH * n * 4 * fft(7)),
        (torch.fft.rfft, real, real_macs),
        (torch.fft.rfft2, real, real_macs + columns),
        (lambda x: torch.fft.irfft2(x[..., :half], s=(7, n)), complex_x, real_macs + columns),
    ):
        assert count_macs(module(function), x, formula_set="linalg").macs == macs


@pytest.mark.parametrize(("batch", "size", "columns"), [(1, 1, 3), (2, 7, 5), (3, 64, 11), (5, 13, 1)])
def test_triangular_solve_is_counted_by_default(batch, size, columns):
    matrix, sides = torch.eye(size).expand(batch, size, size), torch.ones(batch, size, columns)
    solve = module(lambda a, b: linalg.solve_triangular(a, b, upper=False))
    assert count_macs(solve, matrix, sides).macs == batch * columns * substitution(size)


def test_errors_name_the_set():
    with pytest.raises(UnsupportedError, match="formula_set='linalg' counts _linalg_det, formulas="):
        count_macs(module(linalg.det), square(3))
    with pytest.raises(UnsupportedError, match="_linalg_svd on 3x3x3 .*; formulas="):
        count_macs(module(linalg.svd), square(3), formula_set="linalg")
    with pytest.raises(ValueError, match="formula_set='fft' is none of linalg"):
        count_macs(module(linalg.det), square(3), formula_set="fft")
    assert_macs(
        module(linalg.det), square(3), expected=11, formula_set="linalg", formulas={"_linalg_det": lambda _: 11}
    )
    audit = count_macs(module(linalg.inv), square(3), formula_set="linalg").audit
    assert [line.source for line in audit] == ["formula_set linalg", ""]
