"""Stored latencies: the newest record of each row, the fastest implementations, and their ratios."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from headcount.bench.latency.implementations import skips
from headcount.bench.latency.table import median_ms
from headcount.bench.records import GRAPH, Interval, LatencyRecord
from headcount.reports.facts import Facts

KINDS = ("cuda", "cpu")
"""Kinds of devices."""
LOOP = "loop"
"""The implementation of the released algorithm of MoA."""


def results(
    facts: Facts, find: Callable[[list[LatencyRecord]], Any] = list, with_loop: bool = False
) -> dict[str, dict[str, Any]]:
    """Return by kind of device, ``cuda`` and ``cpu``, what ``find`` makes of each device's records, where that is not
    empty: of the newest record of each row, without smoke tests and repeated measurements.

    ``with_loop``: of the newest run of each timing case that timed the released loop, whose rows only compare there.
    """
    stored = [r for r in facts.latencies() if not r.smoke and not r.again]
    stored.sort(key=lambda r: r.environment["time"])
    if with_loop:
        runs = {_case(r): r.environment["time"] for r in stored if r.implementation == LOOP}
        stored = [r for r in stored if runs.get(_case(r)) == r.environment["time"]]
    newest = {(*_case(r), r.layer, r.implementation): r for r in stored}
    devices: dict[str, dict[str, list[LatencyRecord]]] = {kind: {} for kind in KINDS}
    for (kind, device, *_), record in newest.items():
        devices[kind].setdefault(device, []).append(record)
    return {kind: {name: found for name in own if (found := find(own[name]))} for kind, own in devices.items()}


def _case(record: LatencyRecord) -> tuple[str, str, str]:
    """Return the kind of device, the device and the timing case of a record."""
    return record.environment["device_type"], record.environment["device"], record.cell


def newest_records(facts: Facts) -> list[LatencyRecord]:
    """Return the records of :func:`results` of every device."""
    return [row for own in results(facts).values() for rows in own.values() for row in rows]


def least_overheads(rows: Sequence[LatencyRecord]) -> list[float]:
    """Return the routing overhead of the fastest implementation of each timing case of whole sequences that has one."""
    cells: dict[str, list[float]] = {}
    for row in rows:
        if row.subject == "layer" and row.overhead and row.which != "decode":
            cells.setdefault(row.cell, []).append(row.overhead["value"])
    return [min(values) for values in cells.values()]


HEADLINE_LENGTHS = (128, 2048, 8192)


def headline_rows(rows: Sequence[LatencyRecord]) -> list[LatencyRecord]:
    """Return the row of the fastest implementation of each case, preferably one with a CUDA graph, or the first row of
    a case without a time; layers on a GPU at HEADLINE_LENGTHS where those were measured.

    Runs of other implementations at the same shape are the same case.
    """
    measured = {r.seq_len for r in rows if r.environment["device_type"] == "cuda" and r.subject == "layer"}
    if measured:
        lengths = measured & set(HEADLINE_LENGTHS) or measured
        rows = [r for r in rows if r.subject != "layer" or r.seq_len in lengths]
    shapes: dict[tuple, list[LatencyRecord]] = {}
    for row in rows:
        if row.role == "subject":
            shape = row.subject, row.name, row.seq_len, row.batch_size, row.dtype, row.which, row.routing
            shapes.setdefault(shape, []).append(row)
    timed = {shape: [r for r in own if r.wall_ms] or own[:1] for shape, own in shapes.items()}
    return [min(own, key=slowness) for own in timed.values()]


def slowness(row: LatencyRecord) -> tuple[bool, float]:
    """Return a key that sorts rows with a CUDA graph first, then by time."""
    ms = median_ms(row)
    return (row.timed_by != GRAPH, ms) if ms else (False, 0.0)


def ratios(records: Sequence[LatencyRecord]) -> dict[str, dict[int, Interval]]:
    """Return by shape, length and pass the ratio of the fastest implementation that skips heads, with its interval, at
    each share of heads in percent."""
    found: dict[str, dict[int, Interval]] = {}
    for record in records:
        if record.subject == "layer" and record.to_dense and skips(record.name, record.implementation):
            shape, _, share = record.name.rpartition("-")
            own = found.setdefault(f"{shape.partition('-')[2]}, T {record.seq_len:,}, {record.which}", {})
            own[int(share)] = min(own.get(int(share), record.to_dense), record.to_dense, key=lambda r: r["value"])
    return found


def crossing(ratios: dict[int, float]) -> str | None:
    """Return the share at which the ratio is 1: ``86%``; ``never`` or ``always`` within the measured shares; None for
    fewer than two."""
    if len(ratios) < 2:
        return None
    if min(ratios.values()) >= 1 or max(ratios.values()) < 1:
        return "never" if min(ratios.values()) >= 1 else "always"
    share = crossing_share(ratios)
    return None if share is None else f"{share:.0f}%"


def crossing_share(ratios: dict[int, float]) -> float | None:
    """Return the least share in percent at which the ratio rises through 1, on lines between the measured shares."""
    pairs = pairwise(sorted(ratios.items()))
    crossed = (low + (high - low) * (1 - a) / (b - a) for (low, a), (high, b) in pairs if a < 1 <= b)
    return next(crossed, None)
