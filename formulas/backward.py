"""Ledgers of the backward pass and of a training step, derived from a forward ledger."""

import re
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
            out += [replace(entry, kind=f"{entry.kind}_{part}", weight={}) for part in _products(entry, recompute)]
    return Ledger(tuple(out))


def _products(entry: Entry, recompute: Callable[[Entry], bool] | None) -> list[str]:
    """Return the products of the backward pass of a contraction."""
    parts = {"recompute": recompute and recompute(entry), "dx": not entry.from_input, "dw": entry.trainable}
    return [part for part, is_run in parts.items() if is_run]


_LAYER = re.compile(r"(?:.*\.)?(?:\*|\d+(?:-\d+)?)(?=\.|$)")


def layer_path(path: str) -> str:
    """Return the path of the layer that a module belongs to, up to its last index; empty where it has none."""
    match = _LAYER.match(path)
    return match[0] if match else ""


def repeated_layers(form: Ledger) -> Callable[[str], bool]:
    """Return a function of a module's path: whether full recomputation runs its forward pass again.

    It runs the elements of the innermost lists of modules: the blocks of a stage, not what embeds the stage's input.
    A layer alone is in no list, and runs again as a whole.
    """
    layers = {layer_path(entry.path) for entry in form} - {""}
    lists = {layer.rpartition(".")[0] for layer in layers}
    innermost = {name for name in lists if not any(other.startswith(f"{name}.") for other in lists)}

    def is_repeated(path: str) -> bool:
        layer = layer_path(path)
        return layer.rpartition(".")[0] in innermost if layer else not layers

    return is_repeated


def training_macs(forward: Ledger, *, recompute: Callable[[Entry], bool] | None = None) -> Size:
    """Return the MACs of forward and backward, without the optimizer; ``recompute`` as in :func:`backward`."""
    contractions = (entry for entry in forward if entry.kind in FORWARD_KINDS)
    return forward.macs + sum(entry.size * len(_products(entry, recompute)) for entry in contractions)
