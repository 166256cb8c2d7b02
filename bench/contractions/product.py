"""One contraction as a product of named sizes."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from headcount.bench.trace.events import TensorFact
from headcount.formulas.ledger import MAC_KINDS


@dataclass(frozen=True, slots=True)
class Product:
    """One contraction: ``dims`` multiply to its MACs; ``kind`` is "" if the operands determine it.

    Sizes are named as in (b, m, i) by (b, i, j), n times, in that order; a kind is one of the ledger's.
    ``dense_macs`` is the number with all elements stored; of sparse operands only stored elements are multiplied.
    """

    dims: Mapping[str, int]
    operands: tuple[TensorFact, ...]
    kind: str = ""
    dense_macs: int | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for other names."""
        if [name for name in "bmijn" if name in self.dims] != list(self.dims) or self.kind not in ("", *MAC_KINDS):
            raise ValueError(f"no contraction is {self.kind or 'one'} of {', '.join(self.dims)}")

    @property
    def macs(self) -> int:
        """Multiply-accumulates."""
        return prod(self.dims.values())
