"""Estimate the time of a call by arithmetic, without measuring: the roofline bound on its work, and as expected.

The work is that of its ledger. The kernels of a call are those of a run on meta tensors (bench.performance). Imports no
torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from headcount.bench import accounts
from headcount.bench.column import Column, macs_column, plural
from headcount.bench.errors import excerpt
from headcount.bench.hardware import Hardware, by_device
from headcount.bench.latency import timing_cases
from headcount.bench.latency.implementations import ImplSpec
from headcount.bench.latency.timing_cases import TimingCase
from headcount.bench.performance import model
from headcount.bench.performance.kernel import UNLISTED, Kernel
from headcount.bench.records import LatencyRecord
from headcount.bench.result import Row, Table, columns_of, shown
from headcount.formulas.backward import backward
from headcount.formulas.decoding import reachable_params, step_elements
from headcount.formulas.ledger import Ledger
from headcount.models.configs.base import AttentionConfig, ModelConfig

US = 1e-6


@dataclass(frozen=True)
class Peaks:
    """Peak rates, measured in this process.

    ``macs_per_s``: multiply-accumulates per second of a large product. ``bytes_per_s``: of a copy.
    ``read_bytes_per_s``: of a sum, which writes nothing; 0 where not measured.
    """

    macs_per_s: float
    bytes_per_s: float
    how: str
    read_bytes_per_s: float = 0.0


@dataclass(frozen=True)
class Work:
    """Work of a call: multiply-accumulates, and bytes that must be moved."""

    macs: int
    bytes: int


@cache
def work(case: TimingCase, config: AttentionConfig | ModelConfig) -> Work:
    """Return the work of a call by the closed form of ``config``, the needed or the executed one of an implementation.

    A decoded token projects its own key and value and reads the cached ones.
    """
    counted = case.at_lengths(config)
    # input and output of a layer; the inputs of a model are tokens
    activations = 2 * case.tokens * config.d_model if case.subject == "layer" else 0
    if case.which == "decode":
        step = accounts.step(counted, case.seq_len)
        return Work(step.macs, case.element_bytes * (step_elements(step) + activations))
    ledger = counted.ledger
    trains = case.which == "both"
    # each contraction once forward, twice backward (dX and dW)
    macs = ledger.macs + (backward(ledger).macs if trains else 0)
    return Work(macs, case.element_bytes * least_elements(ledger, activations, trains))


def least_elements(ledger: Ledger, activations: int, trains: bool) -> int:
    """Return the elements that any implementation moves: each used weight, input and output element once, in training
    their gradients too. ``activations``: input and output elements together."""
    weights = sum(reachable_params(entry) for entry in ledger)
    return (1 + trains) * (weights + activations)


def bound_s(macs: int, moved: int, peaks: Peaks) -> float:
    """Return the roofline bound: the longer of the seconds for ``macs`` and for ``moved`` bytes."""
    return max(macs / peaks.macs_per_s, moved / max(peaks.bytes_per_s, peaks.read_bytes_per_s))


def bound_of_record(record: LatencyRecord) -> float | None:
    """Return the roofline bound in milliseconds for a measured row on its own device, of the executed work where
    recorded.

    None without a data sheet of the device and its dtype, and for old rows without bytes.
    """
    hardware = by_device(record.environment["device"])
    if hardware is None or record.dtype not in hardware.macs_per_s or record.least_bytes is None:
        return None
    macs, moved = record.executed_macs or record.macs, record.executed_bytes or record.least_bytes
    return 1000 * model.least_s(moved, macs, hardware, record.dtype)


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
        moved, launches, expected_us = done.bytes, None, None
        least_us = model.least_s(moved, done.macs, hardware, case.dtype) / US
    else:
        moved = sum(kernel.times * kernel.bytes for kernel in kernels)
        launches = sum(kernel.times for kernel in kernels)
        least_us = model.least_us(kernels, hardware, case.dtype)
        expected_us = model.load().expected_us(kernels, hardware, case.dtype)
    shape = case.seq_len, case.batch_size, case.which
    return EstimateRow(spec.name, spec.impl, *shape, done.macs, moved, launches, least_us, expected_us, reason)
