"""Costs of autoregressive decoding, from the ledger of a step: cache elements, MACs, elements moved.

A step is a layer's closed form with the new tokens as queries and all stored tokens as keys, ``n`` of which are
cached: only new tokens are projected to keys and values, and none if the cache is complete (an encoder's output).
A step of a whole model is its ``model`` with ``n``; modules of models that do not decode give the reason in
``NO_DECODE_STEP``.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from headcount.formulas.ledger import SELECTED, CountedWeights, Entry, Ledger, Size, divide, least


def cache_elements(step: Ledger) -> Size:
    """Return the elements in all caches after ``step``, including encoder caches and unselected heads."""
    return sum(entry.size for entry in step if entry.kind == "cache")


def total(step: Callable[[Size], Size], steps: Size, slope_changes: Sequence[int] = ()) -> Size:
    """Return ``step(1) + ... + step(steps)``; ``step`` is linear in the stored tokens between two ``slope_changes``."""
    sums, first = 0, 1
    for last in (*(turn for turn in sorted(set(slope_changes)) if 1 <= turn < steps), steps):
        sums += divide((step(first) + step(last)) * (last - first + 1), 2)
        first = last + 1
    return sums


def weights_read(entry: Entry) -> Size:
    """Return the parameter elements that an operation reads; for an embedding one row per token, 0 if its size is 0.

    A tied matrix is read like any other."""
    if isinstance(entry, CountedWeights):
        return entry.params if entry.is_read else 0
    if entry.size == 0:
        return 0
    if entry.kind == "embedding":
        return entry.size
    if entry.kind == "linear" and not entry.weight:
        return entry.times * prod(size for letter, size in entry.dims.items() if letter not in ("B", "T", "S"))
    return reachable_params(entry)


def reachable_params(entry: Entry) -> Size:
    """Return the parameters that the B T (or B S) tokens of an entry can reach, each with its own selection.

    For the routing that reaches most: min(E, B T K) experts, min(h, s + B T r) heads.
    """
    reached = {}
    for letter in entry.selects:
        own = entry.dims[SELECTED[letter]] - entry.shared
        rows = entry.dims["B"] * entry.dims["T" if "T" in entry.dims else "S"]
        reached[letter] = least(entry.weight[letter], entry.shared + rows * own)
    return replace(entry, weight={**entry.weight, **reached}).params


def step_weights(step: Ledger) -> Size:
    """Return the elements of weights that a step reads, each once."""
    return sum(weights_read(entry) for entry in step)


def step_cached(step: Ledger) -> Size:
    """Return the elements of caches that a step moves: stored ones read once, new ones written once.

    Of the cache what is read for the routing that reads most.
    """
    return sum(entry.size for entry in step if entry.kind in ("cache_read", "cache_write"))


def step_elements(step: Ledger) -> Size:
    """Return the elements that a step moves: those of weights and caches, no activations of the new tokens."""
    return step_weights(step) + step_cached(step)
