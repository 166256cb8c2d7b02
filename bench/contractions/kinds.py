"""What a product is for: found from where its operands come from and where its result goes."""

from collections.abc import Iterator
from math import prod

from headcount.bench.contractions.no_contraction import ELEMENTWISE, FREE, GATHERS, SOFTMAXES, base
from headcount.bench.contractions.products import Product
from headcount.bench.trace.events import AUTOGRAD, FUNCTION, MODULE, Event, TensorFact, Trace
from headcount.formulas.ledger import BACKWARD_KINDS

WHOLE, PART, GATHERED = "whole", "part", "gathered"
_PASSES = FREE | ELEMENTWISE | {"native_dropout"}


class Kinds:
    """The kinds of a trace's products: {event index: [(kind, product)]} in :attr:`found`."""

    def __init__(self, trace: Trace, products: dict[int, list[Product]]) -> None:
        self._trace = trace
        self._products = products
        self._attention: set[int] = set()
        self._scores = self._scores_events()
        self.found: dict[int, list[tuple[str, Product]]] = {}
        for index, parts in products.items():
            event = trace.events[index]
            kinds = self._backward(event, parts) if self._differentiates(event) else self._forward(event, parts)
            self.found[index] = list(zip(kinds, parts, strict=True))

    def _forward(self, event: Event, parts: list[Product]) -> list[str]:
        again = "_recompute" if event.backward else ""
        return [(part.kind or self._of_operands(event, part)) + again for part in parts]

    def _of_operands(self, event: Event, product: Product) -> str:
        weights = [self.weight(fact) for fact in product.operands]
        if any(weight in (PART, GATHERED) for weight in weights):
            return "expert_linear"
        if WHOLE in weights:
            return "linear"
        if event.index in self._scores:
            return "scores"
        if any(self._reaches(fact, self._attention) for fact in product.operands):
            return "values"
        return "contraction"

    def weight(self, fact: TensorFact) -> str | None:
        """Whether a tensor is a parameter or was copied from one: whole, part of one with three or more
        dimensions (one expert of several), or gathered by an index; None where it is not."""
        known = self._trace.parameters.get(fact.storage)
        if known is not None:
            _, shape = known
            return PART if len(shape) > 2 and fact.numel < prod(shape) else WHOLE
        if fact.source is None:
            return None
        event = self._trace.events[fact.source]
        name = base(event.name)
        first = next(event.tensors(), None)
        if first is None or first.source == fact.source:
            return None
        if name in GATHERS:
            # Rows of a matrix are an embedding: values, not weights. A matrix may be seen as several, one per head.
            known = self._trace.parameters.get(first.storage)
            return GATHERED if known and max(len(known[1]), len(first.shape)) > 2 else None
        return self.weight(first) if name in FREE else None

    # Attention

    def _scores_events(self) -> set[int]:
        """Products of two activations whose result reaches a softmax; fills ``_attention`` with these softmaxes."""
        scores = set()
        for event in self._trace.operations():
            if base(event.name) in SOFTMAXES:
                first = next(event.tensors())
                behind = {i for i in self._behind(first) if self._of_activations(i)}
                if behind:
                    scores |= behind
                    self._attention.add(event.index)
        return scores

    def _of_activations(self, index: int) -> bool:
        parts = self._products.get(index, ())
        return any(not p.kind and not any(self.weight(fact) for fact in p.operands) for p in parts)

    def _reaches(self, fact: TensorFact, wanted: set[int]) -> bool:
        return any(index in wanted for index in self._behind(fact))

    def _behind(self, fact: TensorFact) -> Iterator[int]:
        """The operations whose values arrive in a tensor through moves and elementwise operations only."""
        seen: set[int] = set()
        waiting = [fact.source]
        while waiting:
            index = waiting.pop()
            if index is None or index in seen:
                continue
            seen.add(index)
            yield index
            event = self._trace.events[index]
            if base(event.name) in _PASSES:
                waiting += [operand.source for operand in event.tensors() if operand.source != index]

    # Backward

    def _differentiates(self, event: Event) -> bool:
        """Whether a product is part of a gradient, not of a forward pass that runs again in backward."""
        if event.forward is None:
            return False
        around = {outer.what for outer in self._trace.around(event)}
        source = self._trace.events[event.forward]
        # A Function's backward calls torch's functions; a checkpoint calls the block's modules once more.
        again = MODULE in around or source.name == "CheckpointFunction"
        return not again and (FUNCTION not in around or source.what == AUTOGRAD)

    def _backward(self, event: Event, parts: list[Product]) -> list[str]:
        # A grouped product is one in both directions; fused kernels name their gradients.
        return [part.kind if part.kind in BACKWARD_KINDS else self._gradient(event, part) for part in parts]

    def _gradient(self, event: Event, product: Product) -> str:
        """The forward product with the same size that shares an operand: the gradient is the other operand's."""
        used = {fact.storage for fact in product.operands}
        candidates = [
            (kind.removesuffix("_recompute"), candidate)
            for index in self._inside(event.forward)
            for kind, candidate in self.found.get(index, ())
            if candidate.macs == product.macs
        ]
        for kind, candidate in candidates:
            shared = [position for position, fact in enumerate(candidate.operands) if fact.storage in used]
            if shared:
                weight_first = bool(candidate.operands and self.weight(candidate.operands[0]))
                return f"{kind}_{'dx' if (shared[0] == 1) != weight_first else 'dw'}"
        # A Function's own backward may have gathered the weights anew.
        takes_weight = any(self.weight(fact) for fact in product.operands)
        for kind, _ in candidates:
            if kind in ("linear", "expert_linear"):
                return f"{kind}_{'dx' if takes_weight else 'dw'}"
        return "contraction_dx"

    def _inside(self, index: int) -> Iterator[int]:
        """The indices of an event and of all events within it: they follow it in the list."""
        last = len(self._trace.events)
        yield index
        for later in range(index + 1, last):
            parent = self._trace.events[later].parent
            if parent is None or parent < index:
                return
            yield later
