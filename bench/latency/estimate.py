"""Estimate the time of a call on a card by arithmetic, without measuring: at least, and as expected.

The kernels of a call are those of a run on meta tensors (bench.performance).
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from headcount.bench.column import Column, macs_column, plural
from headcount.bench.errors import excerpt
from headcount.bench.hardware import Hardware
from headcount.bench.latency import timing_cases
from headcount.bench.latency.implementations import ImplSpec
from headcount.bench.latency.roofline import Peaks, bound_s, work
from headcount.bench.latency.timing_cases import TimingCase
from headcount.bench.performance import model
from headcount.bench.performance.kernel import UNLISTED, Kernel
from headcount.bench.result import Row, Table, columns_of, shown

US = 1e-6


@dataclass(frozen=True)
class EstimateRow(Row):
    """The least and the expected time of an implementation of a timing case.

    Attributes:
        macs: executed multiply-accumulates.
        launches: number of kernels; None where they are unknown.
        bytes: bytes that the kernels move, or where they are unknown the least that must be moved.
        least_us: microseconds at least.
        expected_us: expected microseconds; None where the kernels are unknown.
        reason: why the kernels are unknown.
    """

    layer: str
    implementation: str
    seq_len: int
    batch_size: int
    which: str
    macs: int = shown(macs_column, "MACs", width=15, priority=2)
    bytes: int = shown(Column, "bytes", kind="int", of="bytes", width=13, priority=3)
    launches: int | None = shown(Column, "kernels", kind="int", width=7, priority=1)
    least_us: float = shown(Column, "at least", "us", kind="fixed", digits=1, width=10, priority=0)
    expected_us: float | None = shown(Column, "expected", "us", kind="fixed", digits=1, width=10, priority=0)
    reason: str = ""

    @property
    def notes(self) -> list[str]:
        """Why the kernels are unknown."""
        return [f"kernels unknown: {self.reason}; at least: the longer of MACs and bytes"] if self.reason else []

    def to_json(self) -> dict[str, Any]:
        """Return the fields; that of the pass has the key of stored latencies."""
        return {"pass" if one.name == "which" else one.name: getattr(self, one.name) for one in fields(self)}


COLUMNS = (*timing_cases.COLUMNS[:-1], *columns_of(EstimateRow))
"""All but the routing, on which an estimate does not depend."""


def table(cases: Sequence[TimingCase], hardware: Hardware) -> Table[EstimateRow]:
    """Return the estimates for every implementation of ``cases``, also for those that are not installed here."""
    batch = dict.fromkeys(f"{case.batch_size:,}" for case in cases)
    rows: list[EstimateRow] = []
    for case in cases:
        # each dense layer once, whatever it is compared with
        specs = {spec.label: spec for spec in case.impls(any_device=True)}
        rows += [_row(case, spec, hardware) for spec in specs.values()]
    dense = dict.fromkeys(row.layer for row in rows if row.layer not in {case.name for case in cases})
    below = [f"{', '.join(dense)}: dense attention with which a measurement compares."] if dense else []
    impls: dict[str, set[str]] = {}
    for row in rows:
        impls.setdefault(row.layer, set()).add(row.implementation)
    if alone := [layer for layer, names in impls.items() if names == {"reference"}]:
        below.append(
            f"{', '.join(alone)}: the reference alone, written to be read; its times are not the least possible."
        )
    if any(row.which == "both" for row in rows):
        below.append("Pass both: forward and backward.")
    return Table(
        "estimate",
        f"Estimate, not measured: {hardware.name}, batch size {', '.join(batch)}",
        COLUMNS,
        rows,
        above=[
            f"At least: over the kernels, the longer of bytes over {hardware.bytes_per_s / 1e12:g} TB/s and MACs over "
            f"the type's rate ({hardware.source}), and {model.LEAST_LAUNCH_US:g} us for each, which is assumed.",
            model.load().statement(hardware),
        ],
        below=[*below, "No figure of this table was measured."],
        note_column="layer",
    )


def sentence(rows: Sequence[EstimateRow]) -> str:
    """Return what the table says in one line: of one layer at one shape also its fastest implementation."""
    found = f"{plural(len(rows), 'row')} estimated; nothing was measured."
    known = [row for row in rows if row.layer == rows[0].layer and row.expected_us is not None]
    if len(known) < 2 or len({(row.seq_len, row.batch_size, row.which) for row in rows}) > 1:
        return found
    best = min(known, key=lambda row: row.expected_us)
    return f"{found} {best.layer}: {best.implementation} is expected to be the fastest of {len(known)} implementations."


def kernels_of(case: TimingCase, spec: ImplSpec) -> tuple[list[Kernel], str]:
    """Return the kernels of a call, or none and the reason."""
    if spec.impl in UNLISTED:
        return [], f"{spec.impl} {UNLISTED[spec.impl]}"
    import torch

    from headcount.bench.counting.kernel_recorder import layer_kernels, model_kernels
    from headcount.bench.latency.runs import loss

    dtype = getattr(torch, case.dtype)
    try:
        if case.subject == "model":
            lengths = case.at_lengths(spec.config).lengths
            return model_kernels(spec.config, spec.impl, lengths, dtype, case.which, loss), ""
        shape = case.batch_size, case.new_len
        return layer_kernels(spec.config, spec.impl, shape, case.seq_len, dtype, case.which), ""
    except Exception as error:
        # an implementation that reads values, or a product without a rule on meta tensors
        return [], f"it does not run on meta tensors: {excerpt(error)}"


def _row(case: TimingCase, spec: ImplSpec, hardware: Hardware) -> EstimateRow:
    done, (kernels, reason) = work(case, spec.executed), kernels_of(case, spec)
    if reason:
        moved, launches, expected_us = done.elements * case.element_bytes, None, None
        least_us = bound_s(done.macs, moved, Peaks.of(hardware, case.dtype)) / US
    else:
        moved = sum(kernel.times * kernel.bytes for kernel in kernels)
        launches = sum(kernel.times for kernel in kernels)
        least_us = model.least_us(kernels, hardware, case.dtype)
        expected_us = model.load().expected_us(kernels, hardware, case.dtype)
    shape = case.seq_len, case.batch_size, case.which
    return EstimateRow(spec.name, spec.impl, *shape, done.macs, moved, launches, least_us, expected_us, reason)
