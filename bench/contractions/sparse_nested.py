"""Products of sparse tensors and of nested tensors (sequences of several lengths)."""

from collections.abc import Callable
from dataclasses import replace
from math import prod

from headcount.bench.contractions.product import Product
from headcount.bench.trace.events import Event, TensorFact

Rule = Callable[[Event], list[Product] | None]

_SPARSE_TOO = frozenset(
    "mm bmm addmm addmm_ _sparse_addmm _sparse_mm mv addmv linear hspmm _sparse_mm_reduce_impl".split()
)
_INPUTS = {"linear": 1, "_transformer_encoder_layer_fwd": 1, "_native_multi_head_attention": 3}
"""Number of leading arguments that are sequences; torch's attention over several lengths is self-attention."""


def stored_products(event: Event, held: list[TensorFact], rule: Rule) -> list[Product] | None:
    """Return the products of an operation with sparse or nested operands ``held``; None if it is unsupported."""
    if any(fact.parts for fact in held):
        return _of_parts(event, rule)
    # The common elements of two sparse operands depend on values, which a trace does not hold.
    partly = event.name in _SPARSE_TOO and len(held) == 1 and bool(held[0].shape)
    return [_of_stored(product, held[0]) for product in rule(event) or ()] if partly else None


def _of_parts(event: Event, rule: Rule) -> list[Product] | None:
    """Return the products of each sequence by itself; None for unsupported operations."""
    a, *others = (fact.parts for fact in event.tensors())
    if event.name in ("matmul", "bmm") and a and others[0]:
        pairs = zip(a, others[0], strict=True)
        return [Product({"b": prod(x[:-2]), "m": x[-2], "i": x[-1], "j": y[-1]}, tuple(event.args)) for x, y in pairs]
    inputs = _INPUTS.get(event.name)
    if not inputs or not a:
        return None
    out = []
    for shape in a:
        x = replace(event.args[0], shape=(1, *shape), stored=None, parts=())
        made = replace(x, shape=(*x.shape[:-1], event.args[1].shape[0])) if event.name == "linear" else None
        out += rule(replace(event, args=(*(x,) * inputs, *event.args[inputs:]), out=made))
    return out


def _of_stored(product: Product, sparse: TensorFact) -> Product:
    """Return the product of a sparse operand: each stored element times a row or column of the other operand."""
    other = product.macs // sparse.numel
    return Product({"i": sparse.stored, "j": other}, product.operands, product.kind, product.macs)
