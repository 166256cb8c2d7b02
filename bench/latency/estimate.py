"""Estimate the least time of a call on named hardware by arithmetic from a data sheet, without measuring.

The bound is the longest of three: the executed MACs at the rate of the data sheet, the bytes that must be moved at its
bandwidth, and a fixed time for each kernel launch.
"""

from collections.abc import Sequence

from headcount.bench.hardware import Hardware, by_device
from headcount.bench.latency import timing_cases
from headcount.bench.latency.implementations import ImplSpec
from headcount.bench.latency.roofline import Peaks, bound, bounds_s, work
from headcount.bench.latency.timing_cases import TimingCase
from headcount.bench.records import LatencyRecord
from headcount.bench.table import Column, Row, Section, Table

RAMP_US = 1.5
"""Microseconds of a kernel in a CUDA graph: assumed for this generation of hardware, not from a data sheet."""
US, TB = 1e-6, 1e12

COLUMNS = (
    *(column for column in timing_cases.COLUMNS if column.key != "routing"),
    Column("macs", "MACs", kind="int", width=15, of="MACs", priority=1),
    Column("bytes", "least\nbytes", kind="int", width=13, of="bytes", priority=1),
    Column("launches", "kernels", kind="int", width=7, priority=2),
    Column("estimate_us", "estimate\nat least", "us", kind="fixed", digits=1, width=10, priority=0),
    Column("limit", "by", width=9, priority=0),
)


def of_record(record: LatencyRecord) -> float | None:
    """Return the estimate in milliseconds for a measured row on its own device, of the executed work where recorded.

    None without a data sheet of the device and its dtype, and for old rows without bytes.
    """
    hardware = by_device(record.environment["device"])
    if hardware is None or record.dtype not in hardware.macs_per_s or record.least_bytes is None:
        return None
    macs, moved = record.executed_macs or record.macs, record.executed_bytes or record.least_bytes
    return bound(macs, moved, Peaks.of(hardware, record.dtype))["roofline_ms"]


def section(cases: Sequence[TimingCase], hardware: Hardware) -> Section:
    """Return the estimates for every implementation of ``cases``, also for those that are not installed here."""
    table = Table(
        "estimate",
        f"Estimate, not measured: {hardware.name}",
        COLUMNS,
        (
            f"By arithmetic from the closed forms and a data sheet ({hardware.source}): the longest of MACs over the "
            f"type's rate, least bytes over {hardware.bytes_per_s / TB:g} TB/s, and {RAMP_US:g} us for each "
            "kernel, which is assumed. A bound from below. MACs are the executed ones: of all E experts where an "
            "implementation runs them all.",
        ),
        "layer",
    )
    rows = [_row(case, spec, hardware) for case in cases for spec in case.impls(any_device=True)]
    return Section(table, rows, ["No figure of this table was measured."])


def _row(case: TimingCase, spec: ImplSpec, hardware: Hardware) -> Row:
    from headcount.bench.latency.launch_count import count_launches

    done, number = work(case, spec.executed), count_launches(case, spec)
    moved = done.elements * case.element_bytes
    bounds = bounds_s(done.macs, moved, Peaks.of(hardware, case.dtype)) | {"kernels": (number or 0) * RAMP_US * US}
    limit = max(bounds, key=bounds.__getitem__)
    values = {
        "layer": spec.name,
        "implementation": spec.impl,
        "seq_len": case.seq_len,
        "batch_size": case.batch_size,
        "pass": case.which,
        "macs": done.macs,
        "bytes": moved,
        "launches": number,
        "estimate_us": bounds[limit] / US,
        "limit": limit,
    }
    unknown = "kernels unknown: the pass is not counted, or the implementation does not run on meta tensors"
    return Row(values, [] if number is not None else [unknown], [values])
