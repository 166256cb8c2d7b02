"""Further costs of a recorded run: bytes moved, MACs of the pairs that masks leave, other FLOPs."""

from collections.abc import Iterator, Mapping, Sequence
from math import prod

import torch

from headcount.bench.contractions.kinds import forward_kind
from headcount.bench.contractions.products import Product
from headcount.bench.contractions.zero_mac_ops import (
    ACTIVATIONS,
    CREATED,
    ELEMENTWISE,
    GATHERS,
    NORMS,
    OTHERS,
    REDUCTIONS,
    SELECTIONS,
    base,
)
from headcount.bench.trace.events import Event, TensorFact, Trace, tensors_in
from headcount.formulas.prices import PRICES

Products = Mapping[int, Sequence[tuple[str, Product]]]
"""Kinds and products of the run's operations, by event."""

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
    """Return the elements of parameters that a run reads at least: each once, and of a table each row that is taken."""
    whole: dict[int, int] = dict.fromkeys(trace.parameters, 0)
    rows = 0
    for event in _operations(trace):
        made = _made(event)
        for fact in dict.fromkeys(event.tensors()):
            if made and fact.storage in whole and fact.storage not in event.writes:
                if base(event.name) in GATHERS:
                    rows += made[0].numel
                else:
                    whole[fact.storage] += fact.numel
    return rows + sum(min(read, prod(trace.parameters[storage][1])) for storage, read in whole.items())


def causal_macs(trace: Trace, by_event: Products) -> int | None:
    """Return the MACs of ``by_event`` without the pairs of queries and keys that masks hide.

    None where no attention has a known mask (bench.trace.masks), or where another product of two activations may have
    an unknown one.
    """
    total, known = 0, False
    for index, parts in by_event.items():
        event = trace.events[index]
        pairs = _pairs(trace, event)
        if pairs is None and any(forward_kind(kind) in ("scores", "values", "contraction") for kind, _ in parts):
            return None
        known |= pairs is not None
        left, every = pairs or (1, 1)
        total += sum(product.macs for _, product in parts) * left // every
    return total if known else None


def _pairs(trace: Trace, event: Event) -> tuple[int, int] | None:
    """Return the pairs of the attention that computes ``event`` or that ``event`` differentiates."""
    calls = [event, *trace.around(event)]
    if event.forward is not None:
        source = trace.events[event.forward]
        calls += [source, *trace.around(source)]
    return next((call.pairs for call in calls if call.pairs), None)


def other_flops(trace: Trace, by_event: Products, prices: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return the FLOPs of operations without MACs by kind; ``prices`` replace some of formulas/prices.toml.

    Only operations with floating-point results count; moving, selecting and comparing cost nothing. A gradient has its
    operation's price. Of a fused operation only softmax and bias are known. Raises ValueError for an unknown kind.
    """
    if unknown := set(prices or ()) - PRICES.keys():
        raise ValueError(f"no price is of {', '.join(sorted(unknown))}; kinds are {', '.join(PRICES)}")
    prices = {**PRICES, **(prices or {})}
    out = dict.fromkeys(prices, 0)
    for event in _operations(trace):
        if event.index in by_event:
            for kind, elements in _inside(event, by_event[event.index]):
                out[kind] += prices[kind] * elements
        elif kind := _kind(base(event.name)):
            facts = tensors_in(event.out)
            result = next(facts, None)
            if result is not None and result.dtype.startswith(("float", "bfloat", "complex")):
                counted = next(event.tensors()) if kind in ("reduction", "pooling") else result
                out[kind] += prices[kind] * counted.numel
    return out


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
