"""One contraction of a call, as a product of named sizes."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from headcount.bench.trace.events import TensorFact


@dataclass(frozen=True, slots=True)
class Product:
    """One contraction: ``dims`` multiply to its MACs; ``kind`` is "" where the operands decide it.

    ``dense_macs`` is what it would be were all elements stored: of sparse operands those are multiplied that are.
    """

    dims: Mapping[str, int]
    operands: tuple[TensorFact, ...]
    kind: str = ""
    dense_macs: int | None = None

    @property
    def macs(self) -> int:
        """Multiply-accumulates."""
        return prod(self.dims.values())
