"""MACs of matrix decompositions, solvers and FFTs: formulas that a caller switches on by name.

The triangular solve alone is counted by default, as a rule of products: layers of linear attention run it.

A multiply-accumulate is a product that is added to another term or subtracted from it, of complex matrices a complex
product, as everywhere. Divisions, square roots, scalings, norms and products with an implicit 1 are none. The counts
are the additions of LAPACK Working Note 41, Appendix C, for algorithms without blocks:

- LU of (m, n): step k subtracts a column times a row from the (m - k, n - k) elements below and right of it, which is
  n(n - 1)(2n - 1)/6 for n = m. A determinant is the diagonal's product: LU alone.
- Cholesky of (n, n): element (i, j) of the lower triangle subtracts j products, n(n² - 1)/6 in total.
- Triangular solve with (n, n): row i subtracts i products, n(n - 1)/2 for each right-hand side. Solving with LU or
  Cholesky factors is two of them, a solve LU and these, an inverse a solve with n right-hand sides.
- QR of (m, n) by Householder: reflection k takes two passes (a dot product, an update) over m - k rows of each of the
  n - k columns behind it, twice LU. Its first q columns of Q are the same reflections on q columns.
- Products with Q (xORMQR) are the same reflections on other columns, 2 Σ(m - k) for each. Least squares (xGELS, and
  xGELSY at full rank) are QR of the matrix or of its transpose, whichever is tall, these reflections and a triangular
  solve for each right-hand side.
- Inverse from a Cholesky factor (xPOTRI): the inverse of the factor, n(n - 1)(n - 2)/6, and the product of both
  triangles, n(n² - 1)/6; in total n(n - 1)(2n - 1)/6, as many as LU.
- FFT of length n by Cooley and Tukey: n Σ(p - 1) complex products over the prime factors p of n, because each of the n
  outputs of a stage adds p terms, the first with factor 1. That is n log2 n for powers of two. FFTs are counted in
  real multiply-accumulates: 4 for a complex product, 2 where input or output is real.

Eigenvalues and singular values have no formula, because their algorithms iterate until convergence.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import prod

from headcount.bench.trace.events import Event, TensorFact, tensors_in

Formula = Callable[[Event], int]
"""MACs of one call of an operator, from its recorded arguments and result."""


def _eliminate(fact: TensorFact, steps: int | None = None) -> int:
    """Return Σ (m - k)(n - k) for k = 1 … ``steps`` of each matrix (…, m, n); all min(m, n) steps for None."""
    *batch, m, n = fact.shape
    return prod(batch) * sum((m - k) * (n - k) for k in range(1, (min(m, n) if steps is None else steps) + 1))


def _cholesky(event: Event) -> int:
    *batch, n, _ = event.args[0].shape
    return prod(batch) * (n * (n * n - 1) // 6)


def substitute(matrix: TensorFact, result: TensorFact) -> int:
    """Return the MACs of one triangular solve with (…, n, n): n(n - 1)/2 for each column of n numbers of the result."""
    return result.numel * (matrix.shape[-1] - 1) // 2


def _substitutions(times: int, matrix_at: int, event: Event) -> int:
    """Return the MACs of ``times`` triangular solves with the matrix at an argument's position."""
    return times * substitute(event.args[matrix_at], next(tensors_in(event.out)))


def _solve(event: Event) -> int:
    """LU, then two triangular solves for each right-hand side; an inverse's are the n columns of the identity."""
    return _eliminate(event.args[0]) + 2 * substitute(event.args[0], event.out[0])


def _lu(event: Event) -> int:
    return _eliminate(event.args[0])


def _qr(event: Event) -> int:
    """R, and unless ``mode`` is "r" the columns of Q that are returned, from as many reflections."""
    matrix, q = event.args[0], event.out[0]
    of_q = 0 if event.argument(1, "mode") == "r" else 2 * _eliminate(q, min(matrix.shape[-2:]))
    return 2 * _eliminate(matrix) + of_q


def _apply_reflections(rows: int, steps: int, columns: int) -> int:
    return 2 * columns * sum(rows - k for k in range(1, steps + 1))


def _product_with_q(event: Event) -> int:
    matrix, tau, other = event.args[:3]
    rows = matrix.shape[-2]
    return _apply_reflections(rows, tau.shape[-1], other.numel // rows)


def _least_squares(event: Event) -> int:
    """Raise ValueError for the drivers that compute singular values, which iterate."""
    driver = event.kwargs.get("driver")
    if driver not in (None, "gels", "gelsy"):
        raise ValueError(f"linalg_lstsq with driver {driver} has no formula; drivers with one: gels, gelsy")
    matrix, solution = event.args[0], event.out[0]
    short, long = sorted(matrix.shape[-2:])
    columns = solution.numel // matrix.shape[-1]
    solves = columns * short * (short - 1) // 2
    return 2 * _eliminate(matrix) + _apply_reflections(long, short, columns) + solves


def _stages(fact: TensorFact, axes: Iterable[int]) -> int:
    """Return Σ(p - 1) over the prime factors p of the lengths of ``axes``."""
    # a pass without an FFT needs no sympy
    from sympy import factorint

    return sum(times * (p - 1) for axis in axes for p, times in factorint(fact.shape[axis]).items())


def _real_fft(real: TensorFact, axes: Sequence[int]) -> int:
    """Real transforms of the last axis; the others are complex, over the n // 2 + 1 of its n numbers that differ."""
    *others, last = axes
    n = real.shape[last]
    half = real.numel // n * (n // 2 + 1)
    return 2 * real.numel * _stages(real, [last]) + 4 * half * _stages(real, others)


SETS: Mapping[str, Mapping[str, Formula]] = {
    "linalg": {
        "cholesky": _cholesky,
        "linalg_cholesky_ex": _cholesky,
        "cholesky_inverse": _lu,
        "cholesky_solve": partial(_substitutions, 2, 1),
        "linalg_lu": _lu,
        "linalg_lu_factor_ex": _lu,
        "linalg_lu_solve": partial(_substitutions, 2, 0),
        "_linalg_det": _lu,
        "_linalg_slogdet": _lu,
        "_linalg_solve_ex": _solve,
        "linalg_inv_ex": _solve,
        "geqrf": lambda event: 2 * _eliminate(event.args[0]),
        "linalg_qr": _qr,
        "linalg_householder_product": lambda event: 2 * _eliminate(event.args[0], event.args[1].shape[-1]),
        "linalg_lstsq": _least_squares,
        "ormqr": _product_with_q,
        "_fft_c2c": lambda event: 4 * event.args[0].numel * _stages(event.args[0], event.args[1]),
        "_fft_r2c": lambda event: _real_fft(event.args[0], event.args[1]),
        "_fft_c2r": lambda event: _real_fft(event.out, event.args[1]),
    }
}
"""Formulas by the name of their set, then by aten's operator."""

HELP = "LU, QR, Cholesky, solves, inverses, FFTs"


def formula_advice(operators: Iterable[str], option: object) -> list[object]:
    """Return words of an error about ``operators``: the ``option`` of this set and what it counts; [] for nothing."""
    counted = ", ".join(name for name in dict.fromkeys(operators) if name in SETS["linalg"])
    return [option, f" counts {counted}, "] if counted else []
