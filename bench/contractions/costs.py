"""Further costs of a recorded run: bytes moved, MACs of the pairs that masks leave, other FLOPs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import torch

from headcount.bench.contractions.classify import PASSES, forward_kind
from headcount.bench.contractions.products.product import Product, ProductsByEvent
from headcount.bench.contractions.zero_mac_ops import (
    ACTIVATIONS,
    CREATED,
    ELEMENTWISE,
    FREE,
    GATHERS,
    NORMS,
    OTHERS,
    REDUCTIONS,
    SELECTIONS,
    SOFTMAXES,
    base,
)
from headcount.bench.trace.events import Event, TensorFact, Trace, tensors_in
from headcount.bench.trace.masks import Pairs
from headcount.formulas.prices import PRICES

GROUPED = ("_grouped_mm", "_scaled_grouped_mm")
"""Products of groups of rows with a matrix of each group."""
_OVERWRITES = CREATED | {"copy", "fill", "zero"}
_BIASED = {"addmm", "_addmm_activation", "addmv", "baddbmm", "addbmm"}
_BIAS_THIRD = {"convolution", "_convolution", "linear"}


def bytes_moved(trace: Trace) -> int:
    """Return the bytes that operations move: each reads its operands and writes its results once, unfused.

    Views move nothing, an expanded dimension is read once, and a gather reads as many elements as it returns. Sparse
    and nested tensors count the elements that they store, without indices.
    """
    return sum(_moved(event) for event in _operations(trace))


def _operations(trace: Trace) -> Iterator[Event]:
    """Iterate over the operations without the functions of one score, which run inside their kernel."""
    return (event for event in trace.operations() if event.times == 1)


def _moved(event: Event) -> int:
    name = base(event.name)
    operands = dict.fromkeys(tensors_in((event.args, tuple(v for key, v in event.kwargs.items() if key != "out"))))
    made = _made(event)
    if not made or "empty" in name:
        return 0
    sizes = [_bytes(fact) for fact in operands if not (name in _OVERWRITES and fact.storage in event.writes)]
    written = sum(map(_bytes, made))
    if name in GATHERS:
        sizes[0] = written
    return sum(sizes) + written


def _made(event: Event) -> list[TensorFact]:
    """Return the results of an operation that are no views."""
    known = {fact.storage for fact in event.tensors()}
    return list(
        dict.fromkeys(
            fact for fact in tensors_in(event.out) if fact.storage in event.writes or fact.storage not in known
        )
    )


def _bytes(fact: TensorFact) -> int:
    elements = fact.numel if fact.stored is None else fact.stored
    if fact.strides is not None:
        elements = prod(size for size, stride in zip(fact.shape, fact.strides, strict=True) if stride or not size)
    return elements * getattr(torch, fact.dtype).itemsize


def weights_read(trace: Trace) -> int:
    """Return the elements of parameters that a run reads at least: each once, and of a table each row that is taken.

    Of experts in one tensor, as many different ones are read as rows can select. An operation on no rows reads nothing.
    """
    rows, read = elements_read(trace)
    return rows + sum(min(elements, prod(trace.parameters[storage][1])) for storage, elements in read.items())


def elements_read(trace: Trace) -> tuple[int, dict[int, int]]:
    """Return the elements of the rows that are taken of tables, and by storage those that other operations read."""
    read: dict[int, int] = dict.fromkeys(trace.parameters, 0)
    rows = 0
    for event in _operations(trace):
        made = _made(event)
        if not any(fact.numel for fact in made):
            continue
        for fact in dict.fromkeys(event.tensors()):
            if fact.storage not in read or fact.storage in event.writes:
                continue
            if base(event.name) == "embedding":
                rows += made[0].numel
            elif base(event.name) in GATHERS:
                read[fact.storage] += made[0].numel
            else:
                read[fact.storage] += _selected_elements(event, fact)
    return rows, read


def _selected_elements(event: Event, fact: TensorFact) -> int:
    """Return the elements of an operand that an operation can read: of a grouped product a matrix for each row."""
    if event.name in GROUPED and len(fact.shape) == 3 and len(event.args[0].shape) == 2:
        taken = event.args[0].shape[0] if event.covered is None else event.covered
        matrices, *sizes = fact.shape
        return min(matrices, taken) * prod(sizes)
    return fact.numel


def causal_macs(trace: Trace, by_event: ProductsByEvent, window: int | None = None) -> int | None:
    """Return the MACs of ``by_event`` without the pairs of queries and keys that masks hide.

    With a ``window`` causal attention sees itself and the ``window`` - 1 keys before it; attention without a mask keeps
    all pairs. None where no attention has a known mask (bench.trace.masks), where another product of two activations
    may have an unknown one, and with a window where a mask is neither.
    """
    total, known = 0, False
    pairs_of = pairs_by_event(trace, by_event)
    for index, parts in by_event.items():
        pairs = pairs_of.get(index)
        if pairs is None and any(forward_kind(kind) in ("scores", "values", "contraction") for kind, _ in parts):
            return None
        known |= pairs is not None
        for kind, product in parts:
            seen = pairs if window is None or pairs is None else _windowed(pairs, kind, product, window)
            if pairs and not seen:
                return None
            left, every = seen or (1, 1)
            total += product.macs * left // every
    return total if known else None


def pairs_by_event(trace: Trace, by_event: ProductsByEvent) -> dict[int, Pairs]:
    """Return the pairs that masks leave, and all pairs, by the event of a product of attention where they are known."""
    written = _written_pairs(trace, by_event)
    found = {index: _pairs(trace, trace.events[index]) or written.get(index) for index in by_event}
    return {index: pairs for index, pairs in found.items() if pairs}


def _windowed(pairs: Pairs, kind: str, product: Product, window: int) -> Pairs | None:
    """Return the pairs that a window leaves of causal attention; None for other masks."""
    left, every = pairs
    if left == every:
        return pairs
    queries, keys = product.dims["m"], product.dims["j" if kind == "scores" else "i"]
    if kind not in ("scores", "values") or queries != keys:
        return None
    sequences = every // (queries * keys)
    in_window, causal = (_band(queries, width) * sequences for width in (window, queries))
    return (in_window, every) if left in (in_window, causal) else None


def _band(tokens: int, window: int) -> int:
    """Return the pairs of each token with itself and the ``window`` - 1 tokens before it."""
    width = min(tokens, window)
    return width * (2 * tokens - width + 1) // 2


@dataclass(frozen=True)
class _Scores:
    """Scores of attention on their way to the values: their products, and the masks that were applied.

    ``pairs`` is None where a mask is not known. The mask alone has no products.
    """

    products: frozenset[int] = frozenset()
    pairs: Pairs | None = None
    is_known: bool = True
    is_weighted: bool = False

    def with_mask(self, pairs: Pairs | None) -> "_Scores":
        """Return the scores with a further mask: two masks that both hide pairs have common ones."""
        if pairs is None or self.pairs is not None and pairs[0] == pairs[1]:
            return self
        is_known = self.is_known and (self.pairs is None or self.pairs[0] == self.pairs[1])
        return replace(self, pairs=pairs, is_known=is_known)


def _written_pairs(trace: Trace, by_event: ProductsByEvent) -> dict[int, Pairs]:
    """Return the pairs of attention that is written out, by the event of its products.

    The scores pass masks on the way to the softmax, whose weights are multiplied by the values.
    """
    found: dict[int, Pairs] = {}
    states: dict[int, _Scores] = {}
    for event in trace.operations():
        parts = by_event.get(event.index, ())
        kinds = {kind for kind, product in parts if not product.kind}
        if "scores" in kinds:
            every = sum(product.macs // product.dims["i"] for _, product in parts)
            states[event.index] = _Scores(frozenset({event.index}), (every, every))
            continue
        facts = dict.fromkeys(event.tensors())
        inputs = [states[fact.source] for fact in facts if fact.source in states]
        name = base(event.name)
        if "values" in kinds:
            for state in inputs:
                if state.is_weighted and state.is_known and state.pairs:
                    found[event.index] = state.pairs
        elif name in SOFTMAXES and inputs:
            state = replace(inputs[0], is_weighted=True)
            states[event.index] = state
            if state.is_known and state.pairs:
                found |= dict.fromkeys(state.products, state.pairs)
        elif name in REDUCTIONS and inputs:
            # the largest score, which is subtracted from each
            states[event.index] = _Scores()
        elif name in PASSES and (inputs or event.pairs):
            # a factor hides weights, and only scales scores
            may_hide = name in _MASKING or name == "mul" and any(state.is_weighted for state in inputs)
            others = [fact for fact in facts if fact.source not in states] if may_hide else []
            states[event.index] = _merge(event, inputs, all(_hides_nothing(trace, event, fact) for fact in others))
    return found


_MASKING = frozenset({"add", "sub", "where", "masked_fill", "maximum", "minimum"})
"""Operations whose second operand may hide a score."""


def _merge(event: Event, inputs: Sequence[_Scores], is_known: bool) -> _Scores:
    """Return the scores that an operation returns, of those and of masks among its operands."""
    first, *others = sorted(inputs, key=lambda state: not state.products) or [_Scores()]
    for other in others:
        first = first.with_mask(other.pairs)
        is_known = is_known and other.is_known and not (other.products - first.products)
    if first.is_weighted:
        return replace(first, is_known=first.is_known and is_known)
    return replace(first.with_mask(event.pairs), is_known=first.is_known and is_known)


def _hides_nothing(trace: Trace, event: Event, fact: TensorFact) -> bool:
    """Return whether an operand is no mask of unknown values: a known mask, a number, or a bias from parameters."""
    if event.pairs is not None or not fact.shape or fact.numel == 1 or fact.storage in trace.parameters:
        return True
    if fact.source is None:
        return False
    source = trace.events[fact.source]
    if base(source.name) in FREE | GATHERS:
        operands = list(source.tensors())[:1]
    elif base(source.name) in ELEMENTWISE:
        operands = list(source.tensors())
    else:
        return False
    return bool(operands) and all(_hides_nothing(trace, source, operand) for operand in operands)


def _pairs(trace: Trace, event: Event) -> Pairs | None:
    """Return the pairs of the attention that computes ``event`` or that ``event`` differentiates."""
    calls = [event, *trace.around(event)]
    if event.forward is not None:
        source = trace.events[event.forward]
        calls += [source, *trace.around(source)]
    return next((call.pairs for call in calls if call.pairs), None)


def other_flops(trace: Trace, by_event: ProductsByEvent, prices: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return the FLOPs of operations without MACs by kind; ``prices`` replace some of formulas/prices.toml.

    Only operations with floating-point results count; moving, selecting and comparing cost nothing. A gradient has its
    operation's price. Of a fused operation only softmax and bias are known. Raises ValueError for an unknown kind.
    """
    if unknown := set(prices or ()) - PRICES.keys():
        raise ValueError(f"no price is of {', '.join(sorted(unknown))}; kinds are {', '.join(PRICES)}")
    prices = {**PRICES, **(prices or {})}
    out = dict.fromkeys(prices, 0)
    for _, kind, elements in other_operations(trace, by_event):
        out[kind] += prices[kind] * elements
    return out


def other_operations(trace: Trace, by_event: ProductsByEvent) -> Iterator[tuple[Event, str, int]]:
    """Iterate over the operations without MACs that have a price: each with its kind and the elements that it has."""
    for event in _operations(trace):
        if event.index in by_event:
            for kind, elements in _inside(event, by_event[event.index]):
                yield event, kind, elements
        elif kind := _kind(base(event.name)):
            facts = tensors_in(event.out)
            result = next(facts, None)
            if result is not None and result.dtype.startswith(("float", "bfloat", "complex")):
                counted = next(event.tensors()) if kind in ("reduction", "pooling") else result
                yield event, kind, counted.numel


def _inside(event: Event, parts: Sequence[tuple[str, Product]]) -> Iterator[tuple[str, int]]:
    """Iterate over the additions of a bias, and the softmax of fused attention, as (kind, elements)."""
    if event.name in _BIASED or event.name in _BIAS_THIRD and isinstance(event.argument(2), TensorFact):
        yield "bias", event.out.numel
    for kind, product in parts:
        # the last holds the gradient of the softmax; only products of fused operations have a kind of their own
        if product.kind and kind in ("scores", "scores_recompute", "values_dx"):
            yield "softmax", product.macs // product.dims["i"]


def _kind(name: str) -> str | None:
    if "softmax" in name:
        return "softmax"
    if name in NORMS:
        return "rms_norm" if "rms" in name else "norm"
    if name in ELEMENTWISE - SELECTIONS:
        return "activation" if name.removesuffix("_backward") in ACTIVATIONS else "elementwise"
    if name in REDUCTIONS:
        return "reduction"
    if "pool" in name:
        return "pooling"
    return "other" if name in OTHERS else None
