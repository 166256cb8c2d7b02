"""Ledgers of the backward pass and of a training step, derived from a forward ledger."""

from collections.abc import Callable
from dataclasses import replace

from headcount.formulas.ledger import FORWARD_KINDS, Entry, Ledger, Size


def backward(forward: Ledger, *, recompute: Callable[[Entry], bool] | None = None) -> Ledger:
    """Return the ledger of the backward pass: for y = x W the products dx = dy W^T and dW = x^T dy.

    Each contraction has two operands, and the gradient of each sums over another of its sizes: the products are
    as large as the forward one. For scores = Q K^T and values = A V the second operand is K and V.
    An entry ``from_input`` has no dx, and one that is not ``trainable`` no dW. ``recompute`` marks entries whose
    forward product runs again: fused attention keeps no scores. MACs without any of them: twice the forward's.
    """
    out = []
    for entry in forward:
        if entry.kind in FORWARD_KINDS:
            parts = []
            if recompute and recompute(entry):
                parts.append("recompute")
            if not entry.from_input:
                parts.append("dx")
            if entry.trainable:
                parts.append("dw")
            out += [replace(entry, kind=f"{entry.kind}_{part}", weight={}) for part in parts]
    return Ledger(tuple(out))


def repeated(entry: Entry) -> bool:
    """Return whether an entry belongs to one of the repeated layers, whose forward full recomputation runs again."""
    return any(part[0] == "*" or part[0].isdigit() for part in entry.path.split(".") if part)


def training_macs(forward: Ledger, *, recompute: Callable[[Entry], bool] | None = None) -> Size:
    """Return the MACs of forward and backward, without the optimizer; ``recompute`` as in :func:`backward`."""
    return forward.macs + backward(forward, recompute=recompute).macs
