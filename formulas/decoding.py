"""Decoding one token after another, from the same ledger: cache, multiply-accumulates and bytes of a step.

A step is a layer's own form with the new tokens as queries and all stored ones as keys, ``n`` of which are in the
cache already: keys and values are projected of the new tokens alone, and of none where the cache is closed (of an
encoder's output). A model that decodes has a ``step`` beside its ``model``, and a ``prefill`` where work comes before.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import ceil, prod

from headcount.formulas.ledger import SELECTED, Entry, Ledger, Size, at, divide
from headcount.formulas.transformer import Mixer


def projects_keys_or_values(entry: Entry) -> bool:
    """Whether an entry's output is what a cache stores."""
    return entry.kind == "linear" and entry.path.rpartition(".")[2] in ("k_proj", "v_proj")


def cached_elements(form: Ledger) -> Size:
    """Keys and values that a cache holds of the tokens that ``form`` projects, all layers together."""
    projections = form.select(projects_keys_or_values)
    return sum(entry.times * prod(n for letter, n in entry.dims.items() if letter != "d_m") for entry in projections)


def kept_elements(form: Ledger) -> Size:
    """What the caches of a whole model hold for one context: those of its decoder, where it has one."""
    decoding = form.select(lambda entry: entry.path.startswith("decoder."))
    return cached_elements(decoding if len(decoding) else form)


def attention_step(attention: Mixer, path: str, *, B: Size, new: Size, stored: Size) -> Ledger:
    """A layer's work on ``new`` tokens with ``stored`` keys after it, ``new`` of them its own."""
    return attention(path, B=B, T=new, S=stored, n=stored - new)


def _caches(step: Ledger) -> Iterator[tuple[Entry, Entry, Entry | None]]:
    """Of each attention in ``step``: its scores, its projection of keys, and that of selected heads, if any."""
    by_path = {(entry.path, entry.kind): entry for entry in step}
    for scores in step.select(lambda entry: entry.kind == "scores"):
        key = by_path[at(scores.path, "k_proj"), "linear"]
        yield scores, key, by_path.get((at(scores.path, "out_proj"), "expert_linear"))


def held_elements(step: Ledger) -> Size:
    """Keys and values in all caches after ``step``: the encoder's too, and those of heads that nobody selects."""
    return sum(_stored(scores, _heads(key)) for scores, key, _ in _caches(step))


def read_elements(step: Ledger) -> Size:
    """Of those, what the queries of ``step`` read: keys and values of the heads that their tokens select.

    Queries that select heads may share a key/value head. Of the routings there are, the one that reads most.
    """
    total = 0
    for scores, key, selected in _caches(step):
        heads = _heads(key)
        if selected is not None and "h" in selected.selects:
            per_query, routed = selected.weight["h"], selected.dims["k"] - selected.shared
            # every routed head may be of another key/value head than the shared ones and than each other
            of_shared = ceil(divide(selected.shared * heads["g"], per_query))
            heads["g"] = min(heads["g"], of_shared + scores.dims["T"] * routed)
        total += _stored(scores, heads)
    return total


def _heads(key: Entry) -> dict[str, Size]:
    return {letter: size for letter, size in key.dims.items() if letter not in ("B", "S", "d_m")}


def _stored(scores: Entry, heads: Mapping[str, Size]) -> Size:
    return 2 * scores.times * scores.dims["B"] * scores.dims["S"] * prod(heads.values())


def total(step: Callable[[Size], Size], steps: Size) -> Size:
    """``step(1) + ... + step(steps)`` of an account that is linear in the stored tokens."""
    return divide(steps * (step(1) + step(steps)), 2)


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
    """Parameters of an entry that its tokens can reach: each of B T selects its own beside the shared ones.

    Of the routings there are, the one that reaches most: min(E, B T K) experts, min(h, s + B T r) heads.
    """
    reached = {}
    for letter in entry.selects:
        own = entry.dims[SELECTED[letter]] - entry.shared
        rows = entry.dims["B"] * entry.dims["T"]
        reached[letter] = min(entry.weight[letter], entry.shared + rows * own)
    return replace(entry, weight={**entry.weight, **reached}).params


def step_elements(step: Ledger) -> Size:
    """Elements that a step must move: weights once, stored keys and values read once, new ones written once.

    The activations of the new tokens themselves are left out.
    """
    return sum(weights_read(entry) for entry in step) + read_elements(step) + cached_elements(step)


def training_macs(form: Ledger) -> Size:
    """Forward, and backward with the gradients of both operands of every contraction; no optimiser."""
    return 3 * form.macs
