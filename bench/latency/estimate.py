"""Estimate the least time of a call on named hardware by arithmetic from a data sheet, without measuring.

The bound is the longest of three: the executed MACs at the rate of the data sheet, the bytes that must be moved at its
bandwidth, and a fixed time for each kernel launch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from headcount.bench.column import Column, macs_column
from headcount.bench.hardware import Hardware, by_device
from headcount.bench.latency import timing_cases
from headcount.bench.latency.implementations import ImplSpec
from headcount.bench.latency.roofline import Peaks, bound, bounds_s, work
from headcount.bench.latency.timing_cases import TimingCase
from headcount.bench.records import LatencyRecord
from headcount.bench.result import Row, Table, columns_of, shown

RAMP_US = 1.5
"""Microseconds of a kernel in a CUDA graph: assumed for this generation of hardware, not from a data sheet."""
US, TB = 1e-6, 1e12


def of_record(record: LatencyRecord) -> float | None:
    """Return the estimate in milliseconds for a measured row on its own device, of the executed work where recorded.

    None without a data sheet of the device and its dtype, and for old rows without bytes.
    """
    hardware = by_device(record.environment["device"])
    if hardware is None or record.dtype not in hardware.macs_per_s or record.least_bytes is None:
        return None
    macs, moved = record.executed_macs or record.macs, record.executed_bytes or record.least_bytes
    return bound(macs, moved, Peaks.of(hardware, record.dtype))["roofline_ms"]


@dataclass(frozen=True)
class EstimateRow(Row):
    """The least time of an implementation of a timing case.

    Attributes:
        macs: executed multiply-accumulates.
        bytes: bytes that must be moved.
        launches: number of kernels, None where it is unknown.
        estimate_us: microseconds, the longest of three bounds.
        limit: the name of that bound.
    """

    layer: str
    implementation: str
    seq_len: int
    batch_size: int
    which: str
    macs: int = shown(macs_column, "MACs", width=15, priority=1)
    bytes: int = shown(Column, "least\nbytes", kind="int", width=13, of="bytes", priority=1)
    launches: int | None = shown(Column, "kernels", kind="int", width=7, priority=2)
    estimate_us: float = shown(Column, "estimate\nat least", "us", kind="fixed", digits=1, width=10, priority=0)
    limit: str = shown(Column, "by", width=9, priority=0)

    @property
    def notes(self) -> list[str]:
        """Why the number of kernels is unknown."""
        unknown = "kernels unknown: the pass is not counted, or the implementation does not run on meta tensors"
        return [unknown] if self.launches is None else []

    def to_json(self) -> dict[str, Any]:
        """Return the fields; that of the pass has the key of stored latencies."""
        return {"pass" if one.name == "which" else one.name: getattr(self, one.name) for one in fields(self)}


COLUMNS = (*timing_cases.COLUMNS[:-1], *columns_of(EstimateRow))
"""All but the routing, on which an estimate does not depend."""


def table(cases: Sequence[TimingCase], hardware: Hardware) -> Table[EstimateRow]:
    """Return the estimates for every implementation of ``cases``, also for those that are not installed here."""
    return Table(
        "estimate",
        f"Estimate, not measured: {hardware.name}",
        COLUMNS,
        [_row(case, spec, hardware) for case in cases for spec in case.impls(any_device=True)],
        above=[
            f"By arithmetic from the closed forms and a data sheet ({hardware.source}): the longest of MACs over the "
            f"type's rate, least bytes over {hardware.bytes_per_s / TB:g} TB/s, and {RAMP_US:g} us for each "
            "kernel, which is assumed. A bound from below. MACs are the executed ones: of all E experts where an "
            "implementation runs them all."
        ],
        below=["No figure of this table was measured."],
        note_column="layer",
    )


def _row(case: TimingCase, spec: ImplSpec, hardware: Hardware) -> EstimateRow:
    from headcount.bench.latency.launch_count import count_launches

    done, number = work(case, spec.executed), count_launches(case, spec)
    moved = done.elements * case.element_bytes
    bounds = bounds_s(done.macs, moved, Peaks.of(hardware, case.dtype)) | {"kernels": (number or 0) * RAMP_US * US}
    limit = max(bounds, key=bounds.__getitem__)
    return EstimateRow(
        layer=spec.name,
        implementation=spec.impl,
        seq_len=case.seq_len,
        batch_size=case.batch_size,
        which=case.which,
        macs=done.macs,
        bytes=moved,
        launches=number,
        estimate_us=bounds[limit] / US,
        limit=limit,
    )
