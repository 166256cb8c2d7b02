"""Products of dense tensors that are neither convolutions nor fused attention."""

from collections.abc import Mapping, Sequence
from math import prod

from headcount.bench.contractions.linalg import substitute
from headcount.bench.contractions.products.product import Product, Rule
from headcount.bench.trace.events import Event, TensorFact, tensors_in


def matrices(first: int, second: int) -> Rule:
    """Return the rule for arguments ``first`` (…, m, i) and ``second`` (…, i, j); vectors lack m and j."""

    def rule(event: Event) -> list[Product]:
        a, b = event.args[first], event.args[second]
        sizes = {"b": a.shape[:-2], "m": a.shape[-2:-1], "i": a.shape[-1:], "j": b.shape[1:][-1:]}
        return [Product({letter: prod(size) for letter, size in sizes.items() if size}, (a, b))]

    return rule


def _by_output(event: Event) -> list[Product]:
    """First operand (…, m, k) and an output (…, m, n): weights that are packed or transposed."""
    a, b = event.args[:2]
    *rows, k = a.shape
    return [Product({"m": prod(rows), "i": k, "j": event.out.shape[-1]}, (a, b))]


def _grouped(event: Event) -> list[Product]:
    """Groups of rows against one matrix each. (m, k) x (g, k, n), (g, m, k) x (k, n), (m, k) x (k, n) with groups
    along k (a weight gradient), (g, m, k) x (g, k, n)."""
    a, b = event.args[:2]
    *batch, m, k = a.shape
    dims = {"m": m, "i": k, "j": b.shape[-1]}
    if event.covered is not None and not (batch and len(b.shape) == 3):
        # Rows beyond the last offset are padding and not multiplied.
        dims["j" if batch else "m" if len(b.shape) == 3 else "i"] = event.covered
    if batch and len(b.shape) == 3:
        dims = {"b": batch[0], **dims}
    return [Product(dims, (a, b), "expert_linear")]


def _recurrent(event: Event) -> list[Product]:
    """One recurrent layer in one call: every row of the input through each of its weight matrices."""
    weights = event.args[1] if isinstance(event.args[1], tuple) else event.args[1:3]
    return [linear(event.args[0], weight) for weight in weights if len(weight.shape) == 2]


def linear(x: TensorFact, weight: TensorFact) -> Product:
    """Return the product of as many rows as ``x`` (…, i) has with a weight (j, i)."""
    return Product({"m": prod(x.shape[:-1]), "i": weight.shape[1], "j": weight.shape[0]}, (x, weight), "linear")


def _embedding_bag(kind: str, index_at: int, factor_at: int) -> Rule:
    """Return the rule for rows, the first argument, each multiplied by its own factor: none of a sum without weights.

    The rows are those of a table, or those of the gradient of the sums; the factors are weights, or a table's rows.
    """

    def rule(event: Event) -> list[Product]:
        rows, factor = event.args[0], event.argument(factor_at)
        sizes = {"i": event.args[index_at].numel, "j": rows.shape[1]}
        return [Product(sizes, (rows, factor), kind)] if factor else []

    return rule


def _outer(event: Event) -> list[Product]:
    a, b = event.args[1:3]
    return [Product({"m": a.numel, "j": b.numel}, (a, b))]


def _cross(event: Event) -> list[Product]:
    """Each element of a cross product is a difference of two products."""
    return [Product({"m": event.out.numel, "i": 2}, tuple(event.args[:2]), "contraction")]


def _triangular_solve(matrix_at: int) -> Rule:
    """Return the rule of a solve with a triangular matrix (…, n, n), the argument at this position.

    Row i of a right-hand side subtracts i products: n (n - 1) / 2 (LAPACK Working Note 41, Appendix C).
    """

    def rule(event: Event) -> list[Product]:
        macs = substitute(event.args[matrix_at], next(tensors_in(event.out)))
        return [Product({"i": macs}, tuple(event.tensors()), "contraction")]

    return rule


def _distances(event: Event) -> list[Product]:
    """Return the product of (n, d + 2) and (d + 2, m) that gives all squared distances of (n, d) and (m, d)."""
    a, b = event.args[:2]
    dims = {"b": prod(a.shape[:-2])} if len(a.shape) > 2 else {}
    return [Product({**dims, "m": a.shape[-2], "i": a.shape[-1] + 2, "j": b.shape[-2]}, (a, b))]


def _grid(event: Event) -> list[Product]:
    """Each position of a grid through one small matrix per sample."""
    theta = event.args[0]
    return [Product({"m": event.out.numel, "i": theta.shape[-1]}, (theta,))]


def _trilinear(event: Event) -> list[Product]:
    """nn.Bilinear and its gradients: the product of two tensors and its product with a third.

    Both run for each index of one dimension, whose results are added if it is summed. Dimensions that the third lacks
    are summed in the first product. A product without a sum is elementwise and not counted.
    """
    tensors, lacking, summed = event.args[:3], event.args[3:6], event.args[6]
    unrolled = event.argument(7, default=1)
    a, b, c = (_spread(fact, dims) for fact, dims in zip(tensors, lacking, strict=True))
    times = max(sizes[unrolled] for sizes in (a, b, c))
    for sizes in (a, b, c):
        sizes[unrolled] = 1
    early = [dim for dim in summed if dim in lacking[2] and dim != unrolled]
    late = [dim for dim in summed if dim not in lacking[2] and dim != unrolled]
    between = [1 if dim in early else max(sizes) for dim, sizes in enumerate(zip(a, b, strict=True))]
    found = [_pair(a, b, early, times, tensors[:2])] if early else []
    if late or unrolled in summed:
        found.append(_pair(between, c, late, times, tensors[2:] if found else tensors))
    return found


def _spread(fact: TensorFact, lacking: Sequence[int]) -> list[int]:
    """Return the sizes in all dimensions, 1 where the tensor lacks one."""
    own = iter(fact.shape)
    return [1 if dim in lacking else next(own) for dim in range(len(fact.shape) + len(lacking))]


def _pair(a: Sequence[int], b: Sequence[int], summed: Sequence[int], times: int, operands: tuple) -> Product:
    """Return the product of two tensors summed over ``summed``, or over the ``times`` runs if that is empty.

    Dimensions of ``summed`` that one of them lacks are summed before.
    """
    kept = [(m, n) for dim, (m, n) in enumerate(zip(a, b, strict=True)) if dim not in summed]
    sizes = {
        "b": prod(m for m, n in kept if m == n),
        "m": prod(m for m, n in kept if m != n and n == 1),
        "i": prod(min(a[dim], b[dim]) for dim in summed) if summed else times,
        "j": prod(n for m, n in kept if m != n and m == 1),
        "n": times if summed else 1,
    }
    return Product({letter: size for letter, size in sizes.items() if size != 1 or letter == "i"}, operands)


DENSE: Mapping[str, Rule] = {
    "mm": matrices(0, 1),  # mm((m, i), (i, j))
    "_scaled_mm": matrices(0, 1),  # _scaled_mm((m, i), (i, j), scales)
    "_scaled_mm_v2": matrices(0, 1),  # _scaled_mm_v2((m, i), (i, j), scales)
    "_int_mm": matrices(0, 1),  # _int_mm((m, i), (i, j))
    "bmm": matrices(0, 1),  # bmm((b, m, i), (b, i, j))
    "mv": matrices(0, 1),  # mv((m, i), (i,))
    "dot": matrices(0, 1),  # dot((i,), (i,))
    "vdot": matrices(0, 1),  # vdot((i,), (i,))
    "addmm": matrices(1, 2),  # addmm(bias, (m, i), (i, j))
    "_addmm_activation": matrices(1, 2),  # _addmm_activation(bias, (m, i), (i, j))
    "baddbmm": matrices(1, 2),  # baddbmm(bias, (b, m, i), (b, i, j))
    "addbmm": matrices(1, 2),  # addbmm(bias, (b, m, i), (b, i, j))
    "addmv": matrices(1, 2),  # addmv(bias, (m, i), (i,))
    "addr": _outer,  # addr(bias, (m,), (j,))
    # decomposed unless operands are nested
    "matmul": lambda event: None,
    "linear": _by_output,  # linear((…, i), (j, i), bias)
    "_weight_int8pack_mm": _by_output,  # _weight_int8pack_mm((m, i), (j, i), scales)
    "_weight_int4pack_mm": _by_output,  # _weight_int4pack_mm((m, i), packed, …)
    "_weight_int4pack_mm_for_cpu": _by_output,
    "_grouped_mm": _grouped,  # _grouped_mm((m, i), (g, i, j), offsets), or another of _grouped
    "_scaled_grouped_mm": _grouped,
    # _embedding_bag((V, j), (i,), offsets, …, weights (i,)), and its gradients
    "_embedding_bag": _embedding_bag("contraction", 1, 6),
    "_embedding_bag_forward_only": _embedding_bag("contraction", 1, 6),
    "_embedding_bag_backward": _embedding_bag("contraction_dw", 1, 10),
    "_embedding_bag_per_sample_weights_backward": _embedding_bag("contraction_dx", 2, 1),
    "linalg_cross": _cross,  # linalg_cross((…, 3), (…, 3))
    "linalg_solve_triangular": _triangular_solve(0),  # linalg_solve_triangular((…, n, n), (…, n, j))
    "triangular_solve": _triangular_solve(1),  # triangular_solve((…, n, j), (…, n, n))
    "_euclidean_dist": _distances,  # _euclidean_dist((…, m, d), (…, j, d))
    "affine_grid_generator": _grid,  # affine_grid_generator((n, 2, 3), size)
    "_trilinear": _trilinear,
    # (x (…, i), weights (j, i) …)
    "mkldnn_rnn_layer": _recurrent,
    "_cudnn_rnn": _recurrent,
}
