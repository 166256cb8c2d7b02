"""Decoding one token after another, from the same ledger: cache, multiply-accumulates and bytes of a step.

A step is a layer's own form with the new tokens as queries and all stored ones as keys, ``n`` of which are in the
cache already: keys and values are projected of the new tokens alone, and of none where the cache is closed (of an
encoder's output). What it does with its caches stands in its ledger. A model that decodes has a ``step`` beside its
``model``, any other says why in ``NO_STEP``; its forward over no new tokens is what comes before the first step.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from headcount.formulas.ledger import SELECTED, Entry, Ledger, Size, divide, least


def held(step: Ledger) -> Size:
    """Elements in all caches after ``step``: the encoder's too, and those of heads that nobody selects."""
    return _of_kind(step, "cache")


def written(step: Ledger) -> Size:
    """Of those, what ``step`` adds."""
    return _of_kind(step, "cache_write")


def read(step: Ledger) -> Size:
    """Of those, what the queries of ``step`` read, by the routing that reads most."""
    return _of_kind(step, "cache_read")


def _of_kind(step: Ledger, kind: str) -> Size:
    return sum(entry.size for entry in step if entry.kind == kind)


def total(step: Callable[[Size], Size], steps: Size, turns: Sequence[int] = ()) -> Size:
    """``step(1) + ... + step(steps)`` of an account that is linear in the stored tokens up to the first of ``turns``,
    between them and after the last."""
    sums, first = 0, 1
    for last in (*(turn for turn in sorted(set(turns)) if 1 <= turn < steps), steps):
        sums += divide((step(first) + step(last)) * (last - first + 1), 2)
        first = last + 1
    return sums


def weights_read(entry: Entry) -> Size:
    """Elements of parameters that an operation reads: those that its tokens can reach, one row per embedded token,
    and a tied matrix like any other; none where nothing is computed."""
    if entry.size == 0:
        return 0
    if entry.kind == "embedding":
        return entry.size
    if entry.kind == "linear" and not entry.weight:
        return entry.times * prod(size for letter, size in entry.dims.items() if letter not in ("B", "T", "S"))
    return reachable_params(entry)


def reachable_params(entry: Entry) -> Size:
    """Parameters of an entry that its tokens can reach: each of B T, or of B S, selects its own beside the shared ones.

    Of the routings there are, the one that reaches most: min(E, B T K) experts, min(h, s + B T r) heads.
    """
    reached = {}
    for letter in entry.selects:
        own = entry.dims[SELECTED[letter]] - entry.shared
        rows = entry.dims["B"] * entry.dims["T" if "T" in entry.dims else "S"]
        reached[letter] = least(entry.weight[letter], entry.shared + rows * own)
    return replace(entry, weight={**entry.weight, **reached}).params


def step_elements(step: Ledger) -> Size:
    """Elements that a step must move: weights once, stored keys and values read once, new ones written once.

    The activations of the new tokens themselves are left out.
    """
    return sum(weights_read(entry) for entry in step) + read(step) + written(step)
