"""Products with sparse and nested operands, of which only the stored elements are multiplied."""

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from headcount.bench.contractions.products.dense import matrices
from headcount.bench.contractions.products.product import Product, Rule
from headcount.bench.trace.events import Event

_DENSE_TOO = frozenset("mm bmm addmm addmm_ mv addmv linear".split())
"""Operators of dense operands whose product with a sparse one is that of its stored elements."""
_INPUTS = {"linear": 1, "_transformer_encoder_layer_fwd": 1, "_native_multi_head_attention": 3}
"""Number of leading arguments that are sequences; torch's attention over several lengths is self-attention."""


def of_stored_elements(rule: Rule, event: Event) -> list[Product] | None:
    """Return the products of a call; of sparse and nested operands those of stored elements. None if unsupported."""
    held = [fact for fact in event.tensors() if fact.stored is not None]
    if not held:
        return rule(event)
    if any(fact.parts for fact in held):
        return _of_parts(rule, event)
    # The common elements of two sparse operands depend on values, which a trace does not hold.
    if event.name not in {*SPARSE, *_DENSE_TOO} or len(held) > 1 or not held[0].shape:
        return None
    if not held[0].numel:
        return []
    # each stored element times a row or column of the other operand
    return [
        Product({"i": held[0].stored, "j": one.macs // held[0].numel}, one.operands, one.kind)
        for one in rule(event) or ()
    ]


def _of_parts(rule: Rule, event: Event) -> list[Product] | None:
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


def _reduced(event: Event) -> list[Product]:
    """Return the product of a sparse matrix whose rows are summed; the largest or smallest is no sum."""
    return matrices(0, 1)(event) if event.args[2] in ("sum", "mean") else []


SPARSE: Mapping[str, Rule] = {
    "_sparse_mm": matrices(0, 1),  # _sparse_mm(sparse (m, i), (i, j))
    "hspmm": matrices(0, 1),  # hspmm(sparse (m, i), (i, j))
    "_sparse_addmm": matrices(1, 2),  # _sparse_addmm(bias, sparse (m, i), (i, j))
    "_sparse_mm_reduce_impl": _reduced,  # _sparse_mm_reduce_impl(sparse (m, i), (i, j), reduction)
}
"""Operators of sparse operands alone; others, as mm, take them too."""
