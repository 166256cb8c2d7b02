"""What a call takes at least on named hardware, by arithmetic: an estimate, never a measurement.

The bound is the longest of three: the MACs that the arm does at the data sheet's rate, the bytes that must be moved at
its bandwidth, and a ramp for each kernel that is launched. Nothing here is fast enough to reach it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headcount.bench.hardware import Hardware, by_device
from headcount.bench.table import Column, Row, Section, Table

RAMP_US = 1.5
"""Of a kernel inside a CUDA graph: assumed of this generation of hardware, not taken from a data sheet."""
US, TB = 1e-6, 1e12

COLUMNS = (
    Column("layer", "layer", width=17),
    Column("arm", "arm", width=11, priority=0),
    Column("seq_len", "T", kind="int", width=5, priority=0),
    Column("batch_size", "B", kind="int", width=5, priority=2),
    Column("pass", "pass", width=8),
    Column("macs", "MACs", kind="int", width=15, of="MACs", priority=1),
    Column("bytes", "least\nbytes", kind="int", width=13, of="bytes", priority=1),
    Column("launches", "kernels", kind="int", width=7, priority=2),
    Column("estimate_us", "estimate\nat least", "us", kind="fixed", digits=1, width=10, priority=0),
    Column("limit", "by", width=9, priority=0),
)


def bound_s(macs: int, moved: int, launches: int | None, hardware: Hardware, dtype: str) -> tuple[float, str]:
    """The estimate in seconds, and which of ``MACs``, ``bytes`` and ``kernels`` it is by."""
    parts = {
        "MACs": macs / hardware.macs_per_s[dtype],
        "bytes": moved / hardware.bytes_per_s,
        "kernels": (launches or 0) * RAMP_US * US,
    }
    limit = max(parts, key=parts.__getitem__)
    return parts[limit], limit


def of_record(record: Mapping[str, Any]) -> float | None:
    """Milliseconds that a measured row was to take at least on its own device; None where that is no named hardware,
    or the row is from before its bytes were written down. Of all that the arm did, where that was known."""
    hardware = by_device(record.get("environment", {}).get("device", ""))
    if hardware is None or record.get("least_bytes") is None:
        return None
    macs = record.get("executed_macs", record["macs"])
    moved = record.get("executed_bytes", record["least_bytes"])
    return 1000 * bound_s(macs, moved, None, hardware, record["dtype"])[0]


def section(cells: Sequence[Any], hardware: Hardware) -> Section:
    """The estimates for every arm of ``cells``; such as are not installed here among them."""
    table = Table(
        "estimate",
        f"Estimate, not measured: {hardware.name}",
        COLUMNS,
        (
            f"By arithmetic from the closed forms and a data sheet ({hardware.source}): the longest of MACs over the "
            f"type's rate, least bytes over {hardware.bytes_per_s / TB:g} TB/s, and {RAMP_US:g} us for each "
            "kernel, which is assumed. A bound from below. MACs are those that the arm does: all E experts' where it "
            "runs them all.",
        ),
        "layer",
    )
    return Section(table, _rows(cells, hardware), ["No figure of this table was measured."])


def _rows(cells: Sequence[Any], hardware: Hardware) -> Iterator[Row]:
    from headcount.bench.latency.kernels import launches
    from headcount.bench.latency.roofline import executed_work

    for cell in cells:
        for spec in cell.arms(of_every_device=True):
            done = executed_work(cell, spec)
            moved = done.elements * cell.element_bytes
            number = launches(cell, spec)
            estimate, limit = bound_s(done.macs, moved, number, hardware, cell.dtype)
            values = {
                "layer": spec.name,
                "arm": spec.arm,
                "seq_len": cell.seq_len,
                "batch_size": cell.batch_size,
                "pass": cell.which,
                "macs": done.macs,
                "bytes": moved,
                "launches": number,
                "estimate_us": estimate / US,
                "limit": limit,
            }
            unknown = "kernels unknown: a pass that is not counted, or an arm that does not run without values here"
            notes = [] if number is not None else [unknown]
            yield Row(values, notes, [values])
