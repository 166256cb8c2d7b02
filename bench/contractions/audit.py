"""The audit of a run: every operation of every module, and whether a rule counts it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from headcount.bench.contractions import module_tree
from headcount.bench.trace.events import shapes_text

COUNTED, NO_CONTRACTION, UNKNOWN = "counted", "no contraction", "unknown"


@dataclass(frozen=True)
class AuditLine:
    """All calls of one operation from one module: its state and the shapes of the first call.

    ``source`` is the option or registry whose formula counts it; "" for headcount's own rules.
    """

    operation: str
    state: str
    path: str
    calls: int
    shapes: tuple[tuple[int, ...], ...]
    source: str = ""

    def text(self) -> str:
        """Return one phrase with operation, shapes and module."""
        shapes = shapes_text(self.shapes) or "no tensors"
        times = f"{self.calls} times, " if self.calls > 1 else ""
        return f"{self.operation} on {shapes} ({times}in {self.path or 'the model'})"


def merge_equal_lines(lines: Iterable[AuditLine]) -> list[AuditLine]:
    """Return the lines of equal operations in numbered layers as one, with the path ``layers.0-2.attn``."""
    groups: dict[tuple, list[AuditLine]] = {}
    for line in lines:
        groups.setdefault((line.operation, line.state, line.shapes, module_tree.folded(line.path)), []).append(line)
    merged = []
    for same in groups.values():
        path = module_tree.path_of_layers([line.path for line in same])
        merged.append(replace(same[0], path=path, calls=sum(line.calls for line in same)))
    return merged
