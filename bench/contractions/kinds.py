"""Classify products (linear, scores, values, ...) by the origin of operands and the use of results."""

from math import prod

from headcount.bench.contractions.products.product import Product
from headcount.bench.contractions.zero_mac_ops import ELEMENTWISE, FREE, GATHERS, SOFTMAXES, base
from headcount.bench.trace.events import AUTOGRAD, FUNCTION, MODULE, OPERATION, Event, TensorFact, Trace
from headcount.formulas.ledger import BACKWARD_KINDS

WHOLE, PART, GATHERED = "whole", "part", "gathered"
PASSES = FREE | ELEMENTWISE | {"native_dropout"}
"""Operations between the scores of attention and its values, the softmax apart."""


def forward_kind(kind: str) -> str:
    """Return the kind of the forward product that a product of ``kind`` repeats or differentiates."""
    return kind.rpartition("_")[0] if kind in BACKWARD_KINDS else kind


class Kinds:
    """The kinds of a trace's products: {event index: [(kind, product)]} in :attr:`found`."""

    def __init__(self, trace: Trace, products: dict[int, list[Product]]) -> None:
        self._trace = trace
        self._products = products
        self._origins: dict[int, str | None] = {}
        self._windows: set[int] = set()
        unfolds = (event for event in trace.operations() if base(event.name) == "unfold")
        self._unfolded = {fact.storage for event in unfolds for fact in event.tensors()}
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
            return PART if len(shape) > 2 and fact.numel < prod(shape) else WHOLE
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
