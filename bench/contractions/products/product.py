"""The unit that rules return: one matrix product, or n of them, by its sizes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from headcount.bench.trace.events import Event, TensorFact
from headcount.formulas.ledger import MAC_KINDS


@dataclass(frozen=True, slots=True)
class Product:
    """One contraction: ``dims`` multiply to its MACs; ``kind`` is "" if the operands determine it.

    ``path`` is the module inside that of the call to which it belongs, "" for the call's own: one operation may run the
    products of several modules. Sizes are those of b, m, i, j, n that it has, in this order: n products of (b, m, i) by
    (b, i, j). A kind is one of MAC_KINDS. ``operands`` are tensors by which weights and gradients are recognised, none
    where they do not matter. Of sparse operands only stored elements are multiplied.
    """

    dims: Mapping[str, int]
    operands: tuple[TensorFact, ...]
    kind: str = ""
    path: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError for other names or another order of sizes, and for an unknown kind."""
        if [name for name in "bmijn" if name in self.dims] != list(self.dims) or self.kind not in ("", *MAC_KINDS):
            raise ValueError(f"no contraction is {self.kind or 'one'} of {', '.join(self.dims)}")

    @property
    def macs(self) -> int:
        """Multiply-accumulates."""
        return prod(self.dims.values())


ProductsByEvent = Mapping[int, Sequence[tuple[str, Product]]]
"""Kinds and products of a run's contractions, by event."""
Rule = Callable[[Event], list[Product] | None]
"""Returns the contractions of a call: an empty list for none, None for a call that is unsupported."""
