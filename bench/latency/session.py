"""Run timing cases one after another: store each as it finishes, skip what is stored, stop at a time limit."""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from headcount.bench import records
from headcount.bench.env import environment
from headcount.bench.hardware import Hardware
from headcount.bench.isolated import watched
from headcount.bench.latency import capture, gates, measure, peaks, schedule, table
from headcount.bench.latency.case_tensors import DTYPES
from headcount.bench.latency.device_errors import format_status, is_lost
from headcount.bench.latency.roofline import Peaks, bound
from headcount.bench.latency.telemetry import Telemetry
from headcount.bench.latency.timing_cases import TimingCase
from headcount.bench.output.files import ensure_dir, write
from headcount.bench.table import Row, Section

LATENCY_FILE = "latency.jsonl"
"""File of the records in the folder of ``--out-dir``."""


class CheckSession:
    """A run of timing cases, one after another, whose implementations are checked against the reference.

    Args:
        path: JSON Lines file that finished cases are appended to and skipped from; None to store nothing.
        within: seconds from the start of the command after which no case begins; None for no limit.
    """

    kind, layout = records.CHECK, gates.TABLE

    def __init__(self, path: Path | None, within: float | None = None) -> None:
        self.path, self.within = path, within
        self.parent = watched.worker() if path else {}
        self.started = self.parent.get("started") or time.time()
        self.done = schedule.read_finished(path, self.kind)
        self.missing: list[TimingCase] = []
        self._took: list[float] = []
        self._factors: list[float] = []

    def records_of(self, case: TimingCase, error: Exception | None = None) -> list[dict[str, Any]]:
        """Run ``case`` and return a record for each implementation; with ``error`` those of a case that raised it."""
        if error:
            return [impl.check_record() for impl in measure.failed_impls(case, error)]
        return measure.check_case(case)

    def row(self, record: dict[str, Any]) -> Row:
        """Return the printed row of a record."""
        label = f"{record['cell']} {record['layer']} {record['implementation']}"
        failures = [] if record["status"] == records.AGREES else [f"{label}: {record['status']}"]
        return Row({column.key: record[column.key] for column in self.layout.columns}, [], [record], failures)

    def expected_s(self, case: TimingCase) -> float:
        """Return the seconds that ``case`` is expected to take.

        A listed case: its seconds times the median of measured over expected seconds so far. Any other: the longest
        time so far.
        """
        listed = schedule.expected_s(case)
        if listed is None:
            return max(self._took, default=0.0)
        return listed * (median(self._factors) if self._factors else 1.0)

    def section(self, cases: Sequence[TimingCase]) -> Section:
        """Return the table of ``cases``, which run as it is printed. UsageError where no record could be stored."""
        if self.path and any(case.key not in self.done for case in cases):
            records.append(self.path)
        return Section(self.layout, self._rows(cases))

    def _rows(self, cases: Sequence[TimingCase]) -> Iterator[Row]:
        """Yield the rows of every case that is stored or finishes in time; an error stays with its case."""
        for case in cases:
            runs = case.key not in self.done
            if runs:
                if self.within is not None and time.time() + self.expected_s(case) > self.started + self.within:
                    self.missing.append(case)
                    continue
                self._run(case)
            yield from map(self.row, self.done[case.key])
            if runs and self.parent and case is not cases[-1] and (is_lost(case.device) or capture.failures):
                reason = "the device is lost" if is_lost(case.device) else f"a capture failed ({capture.failures[0]})"
                print(f"{case.key}: {reason}: continuing in a new process", file=sys.stderr)
                watched.restart()

    def _run(self, case: TimingCase) -> None:
        """Run and store one case."""
        began, step = time.time(), f"{self.kind} {case.key}"
        watched.begin_step(step, watched.deadline_s(self.expected_s(case)))
        try:
            if self.parent.get("step") == step:
                raise RuntimeError(self.parent["reason"])
            found = self.records_of(case)
        except Exception as error:
            found = self.records_of(case, error)
        self.done[case.key] = found
        if self.path:
            records.append(self.path, *found)
        self._took.append(time.time() - began)
        if listed := schedule.expected_s(case):
            self._factors.append(self._took[-1] / listed)

    def remark(self) -> str:
        """Return a line for each missing case."""
        return "".join(f"\nmissing, no time left: {case.key}" for case in self.missing)


class TimingSession(CheckSession):
    """A run that times cases too, in ``blocks`` unless a case states its own number.

    ``hardware``: the data sheet that replaces measured peaks.
    """

    kind = records.LATENCY

    def __init__(
        self,
        path: Path | None,
        environ: dict[str, Any],
        blocks: int,
        within: float | None,
        hardware: Hardware | None = None,
    ) -> None:
        super().__init__(path, within)
        self.layout = table.make_table(environ, blocks)
        self.environ, self.blocks, self.hardware = environ, blocks, hardware
        self._peaks: dict[str, Peaks | None] = {}
        self._telemetry = Telemetry(environ["device_type"])

    def records_of(self, case: TimingCase, error: Exception | None = None) -> list[dict[str, Any]]:
        """Return a record with times for each implementation."""
        blocks = case.blocks or self.blocks
        if error:
            found = [impl.record(None, blocks) for impl in measure.failed_impls(case, error)]
        else:
            found = measure.measure_case(
                case, self.peaks_of(case.dtype, case.device), blocks=blocks, on_block=self._telemetry.sample
            )
        common = {"telemetry": self._telemetry.summary(), "environment": self.environ}
        return [record | common for record in found]

    def row(self, record: dict[str, Any]) -> Row:
        """Return the printed row of a record, with the bound of the data sheet where one is given."""
        if self.hardware and record.get("least_bytes") is not None:
            record = record | bound(record["macs"], record["least_bytes"], Peaks.of(self.hardware, record["dtype"]))
        return Row(table.values(record), table.notes(record), [record], measure.failures([record]))

    def peaks_of(self, dtype: str, device: str) -> Peaks | None:
        """Return the peaks of a type: of the data sheet, or measured once; None where that failed."""
        if self.hardware:
            return Peaks.of(self.hardware, dtype)
        if dtype not in self._peaks:
            try:
                self._peaks[dtype] = peaks.measure_peaks(device, DTYPES[dtype])
            except RuntimeError as error:
                print(f"no peak rates of {dtype}, so no roofline bounds: {format_status(error)}", file=sys.stderr)
                self._peaks[dtype] = None
        return self._peaks[dtype]


def environment_of(args: argparse.Namespace, argv: Sequence[str]) -> dict[str, Any]:
    """Return the environment that records state, written to env.json with ``--out-dir``.

    Of a file's absolute path its name is recorded, and no ``--commit``, which has its own field.
    """
    words = [Path(word).name if Path(word).is_absolute() else word for word in argv]
    if args.commit and "--commit" in words:
        del words[(at := words.index("--commit")) : at + 2]
    environ = environment(args.device, ["bench.latency", *words])
    if args.commit:
        environ |= {"commit": args.commit, "dirty": None}
    if args.out_dir:
        folder = ensure_dir(args.out_dir)
        write(folder / "env.json", json.dumps(environ, indent=1, ensure_ascii=False) + "\n")
    return environ
