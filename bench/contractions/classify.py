"""Classify the operations of a recorded run: its contractions by kind, and the audit of every operation.

The kind of a product (linear, scores, values, ...) follows from the origin of its operands and the use of its result.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from numbers import Integral

from headcount.bench.contractions.audit import COUNTED, NO_CONTRACTION, UNKNOWN, AuditLine, merge_equal_lines
from headcount.bench.contractions.dataflow import is_fill
from headcount.bench.contractions.linalg import Formula, formula_advice
from headcount.bench.contractions.products import find_rule, products
from headcount.bench.contractions.products.product import Product, ProductsByEvent
from headcount.bench.contractions.untraced import find_untraced_tensors
from headcount.bench.contractions.zero_mac_ops import ELEMENTWISE, FREE, GATHERS, SOFTMAXES, base, holds_none
from headcount.bench.trace.events import AUTOGRAD, FUNCTION, MODULE, OPERATION, Event, TensorFact, Trace, tensors_in
from headcount.bench.trace.garbage_collector import no_full_gc
from headcount.formulas.ledger import BACKWARD_KINDS

WHOLE, PART, GATHERED = "whole", "part", "gathered"
PASSES = FREE | ELEMENTWISE | {"native_dropout"}
"""Operations between the scores of attention and its values, the softmax apart."""
_CHOICES = GATHERS - {"embedding"} | {"topk", "sort", "argmax", "argsort", "nonzero", "multinomial", "bincount", "max"}
"""Operations of routers, one of which runs where the values of a run select an expert."""


class UnsupportedError(RuntimeError):
    """A run contains unsupported operators; ``unsupported`` are their audit lines, ``reason`` names them."""

    def __init__(self, unsupported: tuple[AuditLine, ...]) -> None:
        self.unsupported = unsupported
        lines = "; ".join(line.text() for line in merge_equal_lines(unsupported))
        # data that was computed elsewhere is no operator, and has no formula
        operators = tuple(dict.fromkeys(line.operation for line in unsupported if " " not in line.operation))
        counted = "".join(map(str, formula_advice(operators, "formula_set='linalg'")))
        if operators:
            counted += (
                f"formulas={{name: lambda event: MACs of one call}} counts {', '.join(operators)} by event.args, "
                "event.kwargs and event.out, as event.args[0].numel * event.out.shape[-1] of a linear layer, "
            )
        self.reason = f"unsupported operations, which may hold products: {lines}"
        super().__init__(f"{self.reason}; {counted}allow_unsupported=True leaves them out")


@no_full_gc
def find_contractions(
    trace: Trace,
    formulas: Mapping[str, Formula] | None = None,
    sources: Mapping[str, str] | None = None,
    *,
    allow_unsupported: bool = False,
) -> tuple[ProductsByEvent, tuple[AuditLine, ...]]:
    """Return the contractions of ``trace`` by event, and the audit of its operations and of tensors made untraced.

    ``formulas`` count further operations, and ``sources`` name where they are from. Raises UnsupportedError for
    operations that may hold products and have no rule, unless ``allow_unsupported``.
    """
    found, audit = _classify(trace, formulas or {}, sources or {})
    # one line for all tensors that one operation in one module uses
    untraced = {(name, path): fact for name, path, fact in find_untraced_tensors(trace)}
    audit += [AuditLine(name, UNKNOWN, path, 1, (fact.shape,)) for (name, path), fact in untraced.items()]
    for path, shapes in trace.elsewhere.items():
        audit.append(AuditLine("a module that another thread runs", UNKNOWN, path, 1, shapes))
    unsupported = tuple(line for line in audit if line.state == UNKNOWN)
    if unsupported and not allow_unsupported:
        raise UnsupportedError(unsupported)
    return Kinds(trace, found).found, tuple(audit)


def contraction_parts(trace: Trace) -> list[tuple[str, Product]]:
    """Return each contraction of ``trace`` with its kind, in order; sizes may be symbols. Raises UnsupportedError."""
    found, audit = _classify(trace, {}, {})
    if unsupported := tuple(line for line in audit if line.state == UNKNOWN):
        raise UnsupportedError(unsupported)
    return [pair for pairs in Kinds(trace, found).found.values() for pair in pairs]


def _classify(
    trace: Trace, formulas: Mapping[str, Formula], sources: Mapping[str, str]
) -> tuple[dict[int, list[Product]], list[AuditLine]]:
    """Return the products of operations by event, and an audit line for each operation, state and module.

    ``sources`` name where the formula of an operation is from. A complex convolution runs as three real ones of one
    size. One is counted, as for a complex matrix product.
    """
    found: dict[int, list[Product]] = {}
    calls: dict[tuple[str, str, str], list[Event]] = {}
    real_ones: dict[tuple, int] = {}
    for event in trace.operations():
        parts = _products(trace, event, formulas)
        if parts and event.name in ("convolution", "convolution_backward"):
            call = _complex_call(trace, event)
            if call is not None:
                # Not by shapes: one of the three has no bias.
                key = (event.name, call, *(tuple(part.dims.items()) for part in parts))
                before = real_ones[key] = real_ones.get(key, -1) + 1
                parts = [] if before % 3 else parts
        if parts is not None:
            found[event.index] = parts
        state = COUNTED if parts is not None else NO_CONTRACTION if holds_none(event.name) else UNKNOWN
        calls.setdefault((event.name, event.path, state), []).append(event)
    audit = []
    for (name, path, state), events in calls.items():
        shapes = tuple(fact.shape for fact in tensors_in(events[0].args))
        source = sources.get(name) or find_rule(name)[1]
        audit.append(AuditLine(name, state, path, len(events), shapes, source))
    return found, audit


def _complex_call(trace: Trace, event: Event) -> int | None:
    """Return the call of a complex convolution that contains ``event``, or whose gradient ``event`` computes."""
    call = next((outer for outer in trace.around(event) if outer.what == FUNCTION), None)
    if call is None and event.forward is not None:
        call = trace.events[event.forward]
    made = tensors_in(call.out) if call else ()
    return call.index if any(fact.dtype.startswith("complex") for fact in made) else None


def _products(trace: Trace, event: Event, formulas: Mapping[str, Formula]) -> list[Product] | None:
    if event.name in formulas:
        macs = formulas[event.name](event)
        if not isinstance(macs, Integral) or macs < 0:
            raise ValueError(f"the formula of {event.name} gives {macs!r}, which is no whole number from 0 on")
        return [Product({"i": macs}, tuple(event.tensors()), "contraction")]
    if event.name == "mul" and _is_einsum(trace, event):
        return [Product({"m": event.out.numel, "i": 1}, tuple(event.tensors()))]
    found = products(event)
    if found and event.times != 1:
        return [replace(product, dims={**product.dims, "n": event.times}) for product in found]
    return found


def _is_einsum(trace: Trace, event: Event) -> bool:
    """Return whether ``event`` is the product of an einsum of two operands whose summed indices all have size one.

    A product with a fill, as a mask of ones, is a scaling, as elsewhere.
    """
    event = event if event.forward is None else trace.events[event.forward]
    for call in (event, *trace.around(event)):
        if call.what == FUNCTION and call.name == "einsum" and call.args and isinstance(call.args[0], str):
            inputs, _, result = call.args[0].partition("->")
            first, *others = inputs.split(",")
            # Without an arrow, common indices are summed.
            sums = len(others) == 1 and any(x.isalpha() and x not in result for x in first if x in others[0])
            return sums and not any(is_fill(trace, fact, event.index) for fact in event.tensors())
    return False


def forward_kind(kind: str) -> str:
    """Return the kind of the forward product that a product of ``kind`` repeats or differentiates."""
    return kind.rpartition("_")[0] if kind in BACKWARD_KINDS else kind


class Kinds:
    """The kinds of a trace's products: {event index: [(kind, product)]} in :attr:`found`.

    A part of a weight is an expert where the run takes anything by values, else a head or a layer of a loop.
    """

    def __init__(self, trace: Trace, products: dict[int, list[Product]]) -> None:
        self._trace = trace
        self._products = products
        self._origins: dict[int, str | None] = {}
        self._windows: set[int] = set()
        unfolds = (event for event in trace.operations() if base(event.name) == "unfold")
        self._unfolded = {fact.storage for event in unfolds for fact in event.tensors()}
        self._part = PART if any(base(event.name) in _CHOICES for event in trace.operations()) else WHOLE
        for event in trace.events:
            if event.what == OPERATION:
                self._follow(event)
        self._scores, self._weighted = self._scores_events()
        self.found: dict[int, list[tuple[str, Product]]] = {}
        for index, parts in products.items():
            event = trace.events[index]
            kinds = self._backward(event, parts) if self._differentiates(event) else self._forward(event, parts)
            self.found[index] = list(zip(kinds, parts, strict=True))

    def _forward(self, event: Event, parts: list[Product]) -> list[str]:
        kinds = [part.kind or self._of_operands(event, part) for part in parts]
        # A gradient that is recomputed or differentiated has the kind of the gradient.
        return [f"{kind}_recompute" if event.backward and kind not in BACKWARD_KINDS else kind for kind in kinds]

    def _of_operands(self, event: Event, product: Product) -> str:
        weights = [self.weight(fact) for fact in product.operands]
        if any(weight in (PART, GATHERED) for weight in weights):
            return "expert_linear"
        if WHOLE in weights:
            return "linear"
        if event.index in self._scores:
            return "scores"
        if any(fact.source in self._weighted for fact in product.operands):
            return "values"
        return "conv" if any(self._has_windows(fact) for fact in product.operands) else "contraction"

    def weight(self, fact: TensorFact) -> str | None:
        """Return how a tensor derives from a parameter; None if it does not.

        It is the whole one, a part of one with three or more dimensions (one expert of several), or gathered by index.
        """
        known = self._trace.parameters.get(fact.storage)
        if known is not None:
            _, shape = known
            return self._part if len(shape) > 2 and fact.numel < prod(shape) else WHOLE
        return self._origins.get(fact.source)

    def _follow(self, event: Event) -> None:
        """Note how the result of an operation derives from a parameter, and whether it holds windows."""
        first = next(event.tensors(), None)
        if first is None:
            return
        name = base(event.name)
        if name in FREE:
            self._origins[event.index] = self.weight(first)
            if self._has_windows(first):
                self._windows.add(event.index)
        elif name in GATHERS:
            # Rows of a matrix are an embedding: values, not weights. A matrix may be viewed as several, one per head.
            known = self._trace.parameters.get(first.storage)
            if known and max(len(known[1]), len(first.shape)) > 2:
                self._origins[event.index] = GATHERED

    def _has_windows(self, fact: TensorFact) -> bool:
        """Return whether a tensor is a view or copy of windows made by Tensor.unfold."""
        return fact.storage in self._unfolded or fact.source in self._windows

    # Attention

    def _scores_events(self) -> tuple[set[int], set[int]]:
        """Return the products of two activations that reach a softmax, and the operations that these softmaxes reach.

        Both paths consist of views, copies and elementwise operations.
        """
        operations = [
            (event.index, base(event.name), [fact.source for fact in event.tensors()])
            for event in self._trace.operations()
        ]
        before: set[int | None] = set()
        for index, name, sources in reversed(operations):
            if name in SOFTMAXES:
                before.add(sources[0])
            elif index in before and name in PASSES:
                before.update(sources)
        scores = {index for index in before if any(map(self._is_of_activations, self._products.get(index, ())))}
        scaled, weighted = set(scores), set()
        for index, name, sources in operations:
            if name in PASSES and not scaled.isdisjoint(sources):
                scaled.add(index)
            if name in SOFTMAXES and sources[0] in scaled or name in PASSES and not weighted.isdisjoint(sources):
                weighted.add(index)
        return scores, weighted

    def _is_of_activations(self, product: Product) -> bool:
        return not product.kind and not any(map(self.weight, product.operands))

    # Backward

    def _differentiates(self, event: Event) -> bool:
        """Return whether a product belongs to a gradient, not to a forward pass that is recomputed in backward."""
        if event.forward is None:
            return False
        around = {outer.what for outer in self._trace.around(event) if outer.backward}
        source = self._trace.events[event.forward]
        # A Function's backward calls torch's functions; a checkpoint calls the block's modules once more.
        again = MODULE in around or source.name == "torch.utils.checkpoint.CheckpointFunction"
        return not again and (FUNCTION not in around or source.what == AUTOGRAD)

    def _backward(self, event: Event, parts: list[Product]) -> list[str]:
        # A grouped product is one in both directions; fused kernels name their gradients.
        return [part.kind if part.kind in BACKWARD_KINDS else self._gradient(event, part) for part in parts]

    def _gradient(self, event: Event, product: Product) -> str:
        """Return the kind of a gradient: the forward product of its size shares one operand, so it is the other's."""
        used = {fact.storage for fact in product.operands}
        candidates = [
            (forward_kind(kind), candidate)
            for inner in self._trace.inside(event.forward)
            for kind, candidate in self.found.get(inner.index, ())
            if candidate.macs == product.macs
        ]
        for kind, candidate in candidates:
            shared = [position for position, fact in enumerate(candidate.operands) if fact.storage in used]
            if len(shared) > 1 and len(shared) == len(used):
                return f"{kind}_recompute"
            if shared:
                weight_first = bool(candidate.operands and self.weight(candidate.operands[0]))
                return f"{kind}_{'dx' if (shared[0] == 1) != weight_first else 'dw'}"
        # A Function's own backward may gather the weights again; the gradient of a gradient has other operands.
        takes_weight = any(self.weight(fact) for fact in product.operands)
        for kind, _ in candidates:
            if kind in ("linear", "expert_linear", "conv"):
                return f"{kind}_{'dx' if takes_weight else 'dw'}"
        return "contraction_dx"
