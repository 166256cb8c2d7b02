"""Measure timing cases one after another: store each as it finishes, skip what is stored, stop at a time limit."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from headcount.bench import records
from headcount.bench.hardware import Hardware
from headcount.bench.latency import capture, measure, peaks, schedule
from headcount.bench.latency.case_tensors import DTYPES
from headcount.bench.latency.device_errors import DeviceLost, format_status, is_lost
from headcount.bench.latency.roofline import Peaks
from headcount.bench.latency.table import Columns
from headcount.bench.latency.telemetry import Telemetry
from headcount.bench.latency.timing_cases import TimingCase
from headcount.bench.output.files import ensure_dir, write
from headcount.bench.table import Row, shown

NO_PEAKS = Peaks(1.0, 1.0, "not measured")
STARTED = "HEADCOUNT_LATENCY_STARTED"
"""Environment variable: when the run began, in seconds since the epoch, for the process that continues it."""

BrokenImpls = dict[str, dict[str, str]]
"""Key of a case -> label of an implementation that left the device unusable -> its status."""


class Unusable(Exception):
    """The device is lost, and there is no file from which a new process could continue."""

    exit_code = 1


def read_finished(path: Path | None) -> tuple[dict[str, list[dict[str, Any]]], BrokenImpls]:
    """Return the rows of the finished cases in ``path`` by key, the newest run of each, and the broken implementations.

    A case is finished where one run stored a row of every implementation. Lines that are no records are reported on
    stderr.
    """
    found, problems = records.read(path) if path and path.exists() else ([], [])
    if problems:
        print(shown(records.briefly(problems)), file=sys.stderr)
    runs: dict[tuple[str, str], dict[tuple, dict[str, Any]]] = {}
    broken: BrokenImpls = {}
    for record in found:
        if record.get("kind") == records.LATENCY:
            rows = runs.setdefault((record["cell"], record["environment"]["time"]), {})
            rows[record["layer"], record["implementation"], record["role"]] = record
        elif record.get("kind") == records.BROKEN:
            broken.setdefault(record["cell"], {})[record["label"]] = record["status"]
    done = {
        key: list(rows.values())
        for (key, _), rows in runs.items()
        if all(row.get("arms_in_cell") == len(rows) for row in rows.values())
    }
    return done, broken


class Session:
    """Measures timing cases on one device.

    Args:
        path: JSON Lines file that finished cases are appended to and skipped from; None to store nothing.
        blocks: blocks of a case that does not state its own number.
        within: seconds from the start of the run after which no case begins; None for no limit.
        hardware: data sheet that replaces measured peaks.
    """

    def __init__(
        self,
        path: Path | None,
        columns: Columns,
        environ: dict[str, Any],
        *,
        blocks: int,
        within: float | None = None,
        hardware: Hardware | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.path, self.columns, self.environ, self.blocks = path, columns, environ, blocks
        self.within, self.hardware, self.now = within, hardware, now
        self.started = float(os.environ.get(STARTED, 0)) or now()
        self.done, self.broken = read_finished(path)
        self.missing: list[TimingCase] = []
        self.peaks: dict[str, Peaks] = {}
        self._took: list[float] = []
        self._factors: list[float] = []
        self._telemetry = Telemetry(columns.device)

    @property
    def left_s(self) -> float:
        """Seconds that are left."""
        return float("inf") if self.within is None else self.started + self.within - self.now()

    def expected_s(self, case: TimingCase) -> float:
        """Return the seconds that ``case`` is expected to take.

        A listed case: its seconds times the median of measured over expected seconds so far. Any other: the longest
        time so far.
        """
        listed = schedule.expected_s(case)
        if listed is None:
            return max(self._took, default=0.0)
        return listed * (median(self._factors) if self._factors else 1.0)

    def check_writable(self, cases: Sequence[TimingCase]) -> None:
        """Raise UsageError where a case is left to measure and its record cannot be stored."""
        if self.path and any(case.key not in self.done for case in cases):
            records.append(self.path)

    def announce(self, cases: Sequence[TimingCase]) -> None:
        """Print on stderr the seconds that each case left to measure is expected to take."""
        todo = [case for case in cases if case.key not in self.done]
        for case in todo:
            print(f"{self.expected_s(case):7.1f} s expected  {case.key}", file=sys.stderr)
        total = sum(map(self.expected_s, todo))
        limit = "" if self.within is None else f", {max(0.0, self.left_s):.0f} s left"
        print(f"{total:7.1f} s expected for {_count(todo)}{limit}", file=sys.stderr)

    def rows(self, cases: Sequence[TimingCase]) -> Iterator[Row]:
        """Yield the rows of every case that is stored or finishes in time; an error stays with its case."""
        for number, case in enumerate(cases, 1):
            if case.key not in self.done and self.expected_s(case) > self.left_s:
                self.missing.append(case)
                continue
            if case.key not in self.done:
                self._measure(case, f"{number}/{len(cases)} {case.key}")
            for record in self.done[case.key]:
                yield Row(self.columns.values(record), self.columns.notes(record), [record], measure.failures([record]))
            if capture.stopped() and self.path and number < len(cases):
                print(f"a capture failed ({capture.stopped()}): continuing in a new process", file=sys.stderr)
                self.restart()

    def _measure(self, case: TimingCase, label: str) -> None:
        began, expected = self.now(), schedule.expected_s(case)
        blocks = case.blocks or self.blocks
        self._telemetry.begin()
        with _progress(label, blocks) as advance:

            def on_block(block: int) -> None:
                self._telemetry.sample(block)
                advance()

            found = self._records(case, blocks=blocks, on_block=on_block)
        common = {"arms_in_cell": len(found), "telemetry": self._telemetry.summary(), "environment": self.environ}
        self.done[case.key] = [record | common for record in found]
        self._append(*self.done[case.key])
        self._took.append(self.now() - began)
        if expected:
            self._factors.append(self._took[-1] / expected)

    def _records(self, case: TimingCase, **options: Any) -> list[dict[str, Any]]:
        known = self.broken.get(case.key, {})
        try:
            return list(measure.measure_case(case, self.peaks_of(case.dtype, case.device), known=known, **options))
        except Exception as error:
            if isinstance(error, DeviceLost) or is_lost(case.device):
                self._restart_without(case, error)
            # the inputs or the peaks failed, so every implementation of the case has this status
            known = {spec.label: format_status(error) for spec in case.impls()}
            return list(measure.measure_case(case, NO_PEAKS, known=known, **options))

    def _restart_without(self, case: TimingCase, error: Exception) -> None:
        """Store which implementation broke the device, and continue in a new process without it."""
        label = error.label if isinstance(error, DeviceLost) else "the case"
        status = error.status if isinstance(error, DeviceLost) else format_status(error)
        if not self.path:
            raise Unusable(
                f"{case.key}: {label}: {status}; with --json PATH a run continues in a new process"
            ) from error
        self._append({"kind": records.BROKEN, "cell": case.key, "label": label, "status": status})
        print(f"{case.key}: {label}: {status}: continuing in a new process", file=sys.stderr)
        self.restart()

    def restart(self) -> None:
        """Replace this process by a new one with the same command, which skips what is stored."""
        sys.stdout.flush()
        sys.stderr.flush()
        os.environ[STARTED] = repr(self.started)
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])

    def peaks_of(self, dtype: str, device: str) -> Peaks:
        """Return the peaks of a type: of the data sheet, or measured once."""
        if self.hardware:
            rate = self.hardware.macs_per_s[dtype]
            return Peaks(rate, self.hardware.bytes_per_s, f"{self.hardware.name}: {self.hardware.source}")
        if dtype not in self.peaks:
            self.peaks[dtype] = peaks.measure_peaks(device, DTYPES[dtype])
        return self.peaks[dtype]

    def remark(self) -> str:
        """Return the number of missing cases, for the line that ends a run."""
        return f"; {_count(self.missing)} missing: no time left" if self.missing else ""

    def _append(self, *found: dict[str, Any]) -> None:
        if self.path:
            records.append(self.path, *found)


@contextmanager
def _progress(label: str, blocks: int) -> Iterator[Callable[[], Any]]:
    """Show a progress bar over the blocks of a case on stderr; nothing without a terminal or without tqdm."""
    try:
        from tqdm import tqdm
    except ImportError:
        yield lambda: None
        return
    with tqdm(total=blocks, desc=label, unit="block", file=sys.stderr, leave=False, disable=None) as bar:
        yield bar.update


def _count(cases: Sequence[TimingCase]) -> str:
    return f"{len(cases)} case{'s' * (len(cases) != 1)}"


def write_json(path: Path, value: Any) -> None:
    """Write one indented JSON file. UsageError where it cannot be written."""
    ensure_dir(path.parent)
    write(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")
