"""Measure timing cases one after another: store each as it finishes, skip what is stored, stop at a time limit."""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from headcount.bench import records
from headcount.bench.env import environment
from headcount.bench.hardware import Hardware
from headcount.bench.latency import capture, measure, peaks, schedule
from headcount.bench.latency.case_tensors import DTYPES
from headcount.bench.latency.device_errors import DeviceLost, is_lost
from headcount.bench.latency.roofline import Peaks
from headcount.bench.latency.table import Columns
from headcount.bench.latency.telemetry import Telemetry
from headcount.bench.latency.timing_cases import TimingCase
from headcount.bench.output.files import ensure_dir, write
from headcount.bench.table import Row, plural

LATENCY_FILE = "latency.jsonl"
"""File of the records in the folder of ``--out-dir``."""
STARTED = "HEADCOUNT_LATENCY_STARTED"
"""Environment variable: when the run began, in seconds since the epoch, for the process that continues it."""


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
        self.done = schedule.read_finished(path, records.LATENCY)
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

    def rows(self, cases: Sequence[TimingCase]) -> Iterator[Row]:
        """Yield the rows of every case that is stored or finishes in time; an error stays with its case."""
        for number, case in enumerate(cases, 1):
            lost = None
            if case.key not in self.done:
                if self.expected_s(case) > self.left_s:
                    self.missing.append(case)
                    continue
                lost = self._measure(case)
            for record in self.done[case.key]:
                yield Row(self.columns.values(record), self.columns.notes(record), [record], measure.failures([record]))
            if (lost or capture.stopped()) and number < len(cases):
                self.restart(f"{case.key}: {lost}" if lost else f"a capture failed ({capture.stopped()})")

    def _measure(self, case: TimingCase) -> str | None:
        """Measure and store one case. Return the error that left the device unusable, if any."""
        began, expected, lost = self.now(), schedule.expected_s(case), None
        blocks = case.blocks or self.blocks
        self._telemetry.begin()
        try:
            rates = self.peaks_of(case.dtype, case.device)
            found = list(measure.measure_case(case, rates, blocks=blocks, on_block=self._telemetry.sample))
        except Exception as error:
            if isinstance(error, DeviceLost) or is_lost(case.device):
                lost = str(error)
            found = measure.failed_case(case, error, blocks)
        common = {"telemetry": self._telemetry.summary(), "environment": self.environ}
        self.done[case.key] = [record | common for record in found]
        if self.path:
            records.append(self.path, *self.done[case.key])
        self._took.append(self.now() - began)
        if expected:
            self._factors.append(self._took[-1] / expected)
        return lost

    def restart(self, reason: str) -> None:
        """Replace this process by a new one with the same command, which skips what is stored; not without a file."""
        if self.path is None:
            return
        print(f"{reason}: continuing in a new process", file=sys.stderr)
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
        return f"; {plural(len(self.missing), 'case')} missing: no time left" if self.missing else ""


def environment_of(args: argparse.Namespace, argv: Sequence[str]) -> dict[str, Any]:
    """Return the environment that records state, written to env.json with ``--out-dir``."""
    environ = environment(args.device, ["bench.latency", *argv])
    if args.commit:
        environ |= {"commit": args.commit, "dirty": None}
    if args.out_dir:
        folder = ensure_dir(args.out_dir)
        write(folder / "env.json", json.dumps(environ, indent=1, ensure_ascii=False) + "\n")
    return environ
