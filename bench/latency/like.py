"""Like with like: how a record was timed, and which samples two records may be compared by. Importable without torch.

A replayed graph holds no launches, an eager call does: one over the other says nothing.
"""

from collections.abc import Mapping
from typing import Any

from headcount.bench.records import GRAPH, WALL, timed_by


def common(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """What both were timed by and may be compared by: graphs where both have one, else wall time."""
    return GRAPH if timed_by(a) == timed_by(b) == GRAPH else WALL


def samples(record: Mapping[str, Any], by: str | None = None) -> list[float]:
    """Milliseconds per block, by a replayed ``graph``, ``events`` or ``wall``; by its own kind unless told."""
    return record["wall_ms"] if (by or timed_by(record)) == WALL else record["gpu_ms"]
