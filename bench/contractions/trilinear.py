"""Sums over products of three tensors as torch runs them: nn.Bilinear and its gradients."""

from collections.abc import Sequence
from math import prod

from headcount.bench.contractions.product import Product
from headcount.bench.trace.events import Event, TensorFact


def trilinear(event: Event) -> list[Product]:
    """Return the product of the first two tensors and its product with the third, for each index of one dimension.

    Dimensions that the third lacks are summed in the first product. A product without a sum is elementwise and not
    counted. Results are added if the unrolled dimension is summed.
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
