"""Run timing cases one after another: store each as it finishes, skip what is stored, stop at a time limit."""

import argparse
import functools
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from headcount.bench import records
from headcount.bench.column import escape_controls
from headcount.bench.env import environment
from headcount.bench.latency import measure, table, timing
from headcount.bench.latency.estimate import Peaks
from headcount.bench.latency.timing import elapsed_s, format_status, is_lost, wall_s
from headcount.bench.latency.timing_cases import TimingCase
from headcount.bench.output.files import ensure_dir, write
from headcount.bench.records import Environment, LatencyRecord
from headcount.bench.result import Table
from headcount.bench.targets import watched

ROUNDS = {"cpu": 5, "cuda": 20}
SIDE = {"cpu": 2048, "cuda": 8192}
"""Rows and columns of the multiplied matrices."""
COPIED = {"cpu": 256 * 2**20, "cuda": 8 * 2**30}
"""Bytes that a copy reads and writes."""
WARM_UP_S = 0.3
"""Seconds of products on a GPU before the first timed one, because its clock rises from idle."""
SLOW = 0.9
"""A block whose clock is below this share of the run's median is marked."""


class TimingSession:
    """A run of timing cases, one after another: implementations are checked against the reference and timed.

    Args:
        path: JSON Lines file that finished cases are appended to and skipped from; None to store nothing.
        environ: environment of the records.
        blocks: number of blocks, unless a case states its own.
        within: seconds from the start of the command after which no case begins; None for no limit.
    """

    def __init__(self, path: Path | None, environ: Environment, blocks: int, within: float | None = None) -> None:
        self.path, self.within = path, within
        self.parent = watched.worker() if path else {}
        self.started = self.parent.get("started") or time.time()
        self.done, self.shared = read_finished(path), measure.Shared()
        self.printed: list[LatencyRecord] = []
        # what follows the time: a line for each missing case
        self.remark = f", records in {path}" if path else ""
        self.longest_s: dict[tuple[str, str], float] = {}
        # the case that left this process unfit for another one, and why
        self.unusable = ""
        self.environ, self.blocks = environ, blocks
        self._peaks = functools.cache(measure_peaks_or_none)
        self._clock = Clock(environ["device_type"])

    def make_table(self, cases: Sequence[TimingCase]) -> Table[LatencyRecord]:
        """Return the table of ``cases``, which run as it is printed. UsageError where no record could be stored."""
        if self.path and any(case.key not in self.done for case in cases):
            records.append(self.path)
        if all(case.blocks == 0 for case in cases):
            return table.checks(self._rows(cases))
        return table.times(self.environ, self.blocks, self._rows(cases))

    def sentence(self) -> str:
        """Return the result of the rows that were printed."""
        return table.sentence(self.printed)

    def _rows(self, cases: Sequence[TimingCase]) -> Iterator[LatencyRecord]:
        """Yield the rows of every case that is stored or finishes in time; an error stays with its case.

        No case begins that would not end in time if it took as long as the longest one of its kind so far.
        """
        for case in cases:
            if case.key not in self.done:
                if self._left_s() < self._longest_s(case):
                    self.remark += f"\nmissing, no time left: {case.key}"
                    continue
                if self.unusable:
                    print(f"{self.unusable}: continuing in a new process", file=sys.stderr)
                    watched.restart()
                self._run(case)
            self.printed += self.done[case.key]
            yield from self.done[case.key]

    def _left_s(self) -> float:
        """Return the seconds until the time limit."""
        return math.inf if self.within is None else self.started + self.within - time.time()

    def _longest_s(self, case: TimingCase) -> float:
        """Return the seconds of the longest case of this subject and pass; where there was none, of all."""
        return self.longest_s.get((case.subject, case.which), max(self.longest_s.values(), default=0.0))

    def _run(self, case: TimingCase) -> None:
        """Run and store one case."""
        began, blocks = time.time(), self.blocks if case.blocks is None else case.blocks
        # a case that hangs is given up; a new process knows no longest one, and a model of billions takes minutes
        limit_s = 4 * self._longest_s(case) + (120 if case.subject == "layer" else 600)
        watched.begin_step(case.key, min(limit_s, self._left_s()))
        try:
            if self.parent.get("step") == case.key:
                raise RuntimeError(self.parent["reason"])
            peaks = self._peaks(case.device, case.dtype) if blocks else None
            found = measure.measure_case(
                case, peaks, environ=self.environ, blocks=blocks, on_block=self._clock.sample, shared=self.shared
            )
        except Exception as error:
            status = format_status(error)
            impls = [measure.TimedImpl(spec.label, None, case=case, spec=spec, status=status) for spec in case.impls()]
            found = [impl.record(None, blocks, self.environ) for impl in impls]
        telemetry = self._clock.summary()
        self.done[case.key] = [replace(record, telemetry=telemetry) for record in found]
        if self.path:
            records.append(self.path, *self.done[case.key])
        kind = case.subject, case.which
        self.longest_s[kind] = max(self.longest_s.get(kind, 0.0), time.time() - began)
        lost = is_lost(case.device)
        if self.parent and (lost or timing.capture_failures):
            reason = "the device is lost" if lost else f"a capture failed ({timing.capture_failures[0]})"
            self.unusable = f"{case.key}: {reason}"


def read_finished(path: Path | None) -> dict[str, list[LatencyRecord]]:
    """Return the records in ``path`` by key of their case, those of the last run of each.

    Lines that are no records are reported on stderr.
    """
    found, problems = records.read_latencies(path) if path and path.exists() else ([], [])
    if problems:
        print(escape_controls(records.briefly(problems)), file=sys.stderr)
    done: dict[str, list[LatencyRecord]] = {}
    for record in found:
        rows = done.setdefault(record.cell, [])
        if rows and rows[0].environment != record.environment:
            rows.clear()
        rows.append(record)
    return done


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


class Clock:
    """Clock of the GPU between the blocks of a case; none on a CPU, and where it cannot be read. Nothing is set.

    One object serves all cases of a run.
    """

    def __init__(self, device: str, read: Callable[[], int] = torch.cuda.clock_rate) -> None:
        """``read`` returns the clock of the current GPU in MHz; without nvidia-ml-py it fails."""
        self._read = read if device == "cuda" else None
        self._run: list[int] = []
        self._case: dict[int, int] = {}

    def sample(self, block: int) -> None:
        """Read the clock after ``block``."""
        try:
            if self._read:
                self._case[block] = self._read()
        except Exception:
            # it would fail each time
            self._read = None

    def summary(self) -> dict[str, Any] | None:
        """Return the range of the clock since the last summary, and the blocks at a slow one; None without any."""
        clocks, self._case = self._case, {}
        if not clocks:
            return None
        self._run += clocks.values()
        slow = SLOW * median(self._run)
        return {
            "sm_clock_mhz": {"min": min(clocks.values()), "max": max(clocks.values())},
            "slow_blocks": [block for block, clock in clocks.items() if clock < slow],
        }


def measure_peaks_or_none(device: str, dtype: str) -> Peaks | None:
    """Return the peaks of a type by its name; None where that fails, with the reason on stderr."""
    try:
        return measure_peaks(device, getattr(torch, dtype))
    except RuntimeError as error:
        print(f"no peak rates of {dtype}, so no roofline bounds: {format_status(error)}", file=sys.stderr)
        return None


def measure_peaks(device: str, dtype: torch.dtype) -> Peaks:
    """Return the best rate of some rounds, after warm-up, of square products, copies, and on a GPU sums."""
    side, copied = SIDE[device], COPIED[device]
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    source = torch.randn(copied // 2 // 4, device=device)
    target = torch.empty_like(source)
    if device == "cuda":
        started = time.perf_counter()
        while time.perf_counter() - started < WARM_UP_S:
            torch.mm(a, b)
            torch.cuda.synchronize()
    size = source.nbytes
    product_s, copy_s = _best_s(lambda: torch.mm(a, b), device), _best_s(lambda: target.copy_(source), device)
    read_s = _best_s(lambda: source.sum(), device) if device == "cuda" else math.inf
    how = f"{side}^3 product, {copied} bytes read and written, best of {ROUNDS[device]}"
    return Peaks(side**3 / product_s, 2 * size / copy_s, how, size / read_s)


def _best_s(call: Callable[[], object], device: str) -> float:
    """Return the seconds of the fastest round: between events on a GPU, else by the host's clock."""
    call()
    return min(elapsed_s(call) if device == "cuda" else wall_s(call, device) for _ in range(ROUNDS[device]))
