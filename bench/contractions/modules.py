"""The modules of a counted model: class, output, parameters, calls, and the parameters that one token uses."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from math import prod
from os.path import commonprefix
from typing import TYPE_CHECKING

from headcount.bench.contractions.selections import Selections, weight_of
from headcount.bench.contractions.zero_mac_ops import FREE, base
from headcount.bench.trace.events import MODULE, OPERATION, Event, TensorFact, Trace, tensors_in

if TYPE_CHECKING:
    from torch import nn

    from headcount.bench.contractions.products.product import ProductsByEvent

MAX_SHAPES = 2
"""The most shapes of a module's output that are printed."""


@dataclass(frozen=True)
class ModuleRecord:
    """One module. Parameters are its own, not those of modules inside; a tensor belongs to the first that holds it.

    ``used_params`` are those that an operation of the run read, ``active_params`` those that one token uses (None
    where unknown, see :func:`active_shares`). ``output`` are the shapes of the tensors that its first call returned.
    ``calls`` is the number of its calls in the forward pass.
    """

    path: str
    type: str
    output: str = ""
    params: int = 0
    trainable_params: int = 0
    used_params: int = 0
    active_params: int | None = 0
    weight_bytes: int = 0
    calls: int = 0


def outer_paths(path: str) -> Iterator[str]:
    """Iterate over the paths of the modules around a module and its own: the model, which is the empty path, first."""
    yield ""
    yield from accumulate(path.split(".") if path else (), "{}.{}".format)


def uncalled_modules(modules: Sequence[ModuleRecord]) -> tuple[str, ...]:
    """Return the topmost modules with parameters that did not run and none of whose parameters was read."""
    ran, holding = set(), {}
    for module in modules:
        outer = tuple(outer_paths(module.path))
        if module.calls or module.used_params:
            ran.update(outer)
        if module.params:
            holding |= dict.fromkeys(outer)
    return tuple(path for path in holding if path not in ran and (not path or path.rpartition(".")[0] in ran))


def used_weights(trace: Trace) -> set[str]:
    """Return the names of the weights that an operation of the run read, without those that are only copied."""
    read = {fact.storage for event in trace.events if event.what == OPERATION for fact in event.tensors()}
    read -= _copied_weights(trace)
    return {weight.name for weight in trace.weights if any(one in read or one < 0 for one in weight.storages)}


def module_records(trace: Trace, by_event: "ProductsByEvent") -> tuple[ModuleRecord, ...]:
    """Return a record of each module that was called or holds parameters, itself or in a module inside."""
    calls: defaultdict[str, list[Event]] = defaultdict(list)
    for event in trace.events:
        if event.what == MODULE and not (event.backward or event.failed):
            calls[event.path].append(event)
    used = used_weights(trace)
    active = active_shares(trace, by_event)
    own: defaultdict[str, Counter[str]] = defaultdict(Counter)
    holding: set[str] = set()
    for weight in trace.weights:
        path, params = weight.name.rpartition(".")[0], prod(weight.shape)
        if not (weight.registered or weight.name in used):
            continue
        in_use = params if weight.name in used else 0
        own[path].update(
            params=params,
            trainable_params=params if weight.trainable else 0,
            used_params=in_use,
            active_params=int((active or {}).get(weight.storages[0], 1) * in_use),
            weight_bytes=weight.bytes,
        )
        holding.update(outer_paths(path))
    records = []
    for path, kind in ({fact.path: fact.kind.__name__ for fact in trace.modules} | trace.found).items():
        if path in calls or path in holding:
            sums = own[path]
            if sums and active is None:
                sums = {**sums, "active_params": None}
            records.append(ModuleRecord(path, kind, _shapes(calls[path]), **sums, calls=len(calls[path])))
    return tuple(records)


def parameter_records(module: "nn.Module") -> Iterator[ModuleRecord]:
    """Yield a record of each module that holds parameters, itself or in a module inside; none of them ran."""
    seen: set[int] = set()
    for path, one in module.named_modules():
        own = [weight for weight in one.parameters(recurse=False) if id(weight) not in seen]
        seen.update(map(id, own))
        if next(one.parameters(), None) is not None:
            yield ModuleRecord(
                path,
                type(one).__name__,
                params=sum(weight.numel() for weight in own),
                trainable_params=sum(weight.numel() for weight in own if weight.requires_grad),
                weight_bytes=sum(weight.nbytes for weight in own),
            )


def _copied_weights(trace: Trace) -> set[int]:
    """Return the storages of weights that a function only copies into other weights, which it then uses instead."""
    found = {storage for weight in trace.weights if not weight.registered for storage in weight.storages}
    copies: defaultdict[int, set[int]] = defaultdict(set)
    computes: set[int] = set()
    for event in trace.operations() if found else ():
        name, operands = base(event.name), [fact.storage for fact in event.tensors()]
        if name in ("clone", "_to_copy"):
            copies[operands[0]].update(fact.storage for fact in tensors_in(event.out))
        elif name == "copy":
            copies[operands[1]].add(operands[0])
        elif name not in FREE:
            computes.update(operands)

    def ends_in_weights(storage: int, seen: frozenset[int] = frozenset()) -> bool:
        ends = copies.get(storage, set()) - seen - {storage}
        return bool(ends) and all(end in found or ends_in_weights(end, seen | {storage}) for end in ends)

    return set(filter(ends_in_weights, found - computes))


def _shapes(calls: Sequence[Event]) -> str:
    """Return the shapes of the tensors that the first of ``calls`` returned: ``2x7x5``."""
    found = ["x".join(map(str, fact.shape)) or "scalar" for fact in tensors_in(calls[0].out)] if calls else []
    return ", ".join(found[:MAX_SHAPES] + (["…"] if len(found) > MAX_SHAPES else []))


def active_shares(trace: Trace, by_event: "ProductsByEvent") -> dict[int, Fraction] | None:
    """Return the share of each expert weight that one token uses, by storage; None where it is unknown.

    Weights of E experts are those of a product with one matrix for each row or group of rows. Their share is K / E
    where a top-K over E scores runs nearby and the products multiply exactly K rows for each of its tokens. It is
    unknown for other expert weights, and where the run selects weights in another way (bench.contractions.selections).
    Parts of a weight at constant places, as those of heads in a loop, are no experts. A tensor with E rows in the same
    module that no product multiplies is their bias. Every other parameter that is read is used by every token.
    """
    rows: dict[int, Fraction] = {}
    multiplied: set[int] = set()
    selections = Selections(trace, by_event)
    selected: set[int] = set()
    for index, kind, product in ((index, *pair) for index, parts in by_event.items() for pair in parts):
        weights = {weight_of(trace, fact) for fact in product.operands} - {None}
        multiplied |= weights
        is_late = selections.exit is not None and index > selections.exit
        for weight in weights if kind == "expert_linear" else ():
            shape = trace.parameters[weight][1]
            rows[weight] = rows.get(weight, 0) + Fraction(product.macs * shape[0], prod(shape))
            if product.kind or is_late or not all(_is_at_constant_place(trace, fact) for fact in product.operands):
                selected.add(weight)
    tokens = _routed_tokens(trace)
    routers: set[str] = set()
    shares: dict[int, Fraction] = {}
    biases: dict[tuple[str, int], Fraction] = {}
    for weight, number in rows.items():
        name, (experts, *_) = trace.parameters[weight]
        owner = name.rpartition(".")[0]
        found = [(path, k) for (path, size, k), seen in tokens.items() if (size, seen * k) == (experts, number)]
        if not found and weight in selected:
            return None
        if not found:
            continue
        router, top_k = max(found, key=lambda place: len(commonprefix([place[0].split("."), owner.split(".")])))
        routers.add(router)
        shares[weight] = biases[owner, experts] = Fraction(top_k, experts)
    for weight in trace.weights:
        place = (weight.name.rpartition(".")[0], *weight.shape[:1])
        if place in biases and len(weight.shape) == 2 and multiplied.isdisjoint(weight.storages):
            shares[weight.storages[0]] = biases[place]
    for roots in selections.found:
        if any(root < 0 or trace.events[root].path not in routers for root in roots):
            return None
    return shares


def _is_at_constant_place(trace: Trace, fact: TensorFact) -> bool:
    """Return whether a tensor is no weight, or a view or a copy of one, which no integers of the run select."""
    if weight_of(trace, fact) is None:
        return True
    while fact.storage not in trace.parameters:
        event = trace.events[fact.source]
        if base(event.name) not in FREE:
            return False
        fact = next(event.tensors())
    return True


def _routed_tokens(trace: Trace) -> dict[tuple[str, int, int], int]:
    """Return the tokens of each top-K over scores, by module path, E and K."""
    tokens: dict[tuple[str, int, int], int] = {}
    for event in trace.operations():
        if event.name != "topk" or event.backward:
            continue
        first, chosen = next(event.tensors()), next(tensors_in(event.out), None)
        if "float" in first.dtype and chosen is not None and chosen.shape[:-1] == first.shape[:-1]:
            key = (event.path, first.shape[-1], chosen.shape[-1])
            tokens[key] = tokens.get(key, 0) + prod(first.shape[:-1])
    return tokens
