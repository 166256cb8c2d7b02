"""Cells measured one after another within a time: stored as they finish, begun only where they would finish."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from headcount.bench.hardware import Hardware
from headcount.bench.latency import capture, clock, order, peaks
from headcount.bench.latency.cells import Cell
from headcount.bench.latency.faults import DeviceLost, lost, status_of
from headcount.bench.latency.roofline import Peaks
from headcount.bench.latency.shared import DTYPES
from headcount.bench.latency.store import GIVEN_UP, STARTED, Store, go_on
from headcount.bench.latency.table import Columns
from headcount.bench.latency.telemetry import Telemetry
from headcount.bench.output.files import made, write
from headcount.bench.table import Row

NO_TIME = "no time left"
NO_PEAKS = Peaks(1.0, 1.0, "not measured")


class Unusable(Exception):
    """The device is lost, and nobody can go on in a new process."""

    exit_code = 1


class Session:
    """Measures cells on one device. ``within``: seconds from ``started``, None for no limit.

    ``missing`` are the cells that were not measured, with the reason; ``hardware`` whose figures stand for peaks.
    """

    def __init__(
        self,
        store: Store,
        columns: Columns,
        environ: dict[str, Any],
        *,
        blocks: int,
        within: float | None = None,
        hardware: Hardware | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.store, self.columns, self.environ, self.blocks = store, columns, environ, blocks
        self.within, self.hardware, self.now = within, hardware, now
        self.started = float(os.environ.get(STARTED, 0)) or now()
        self.missing: list[tuple[Cell, str]] = []
        self.peaks: dict[str, Peaks] = {}
        self._factors: list[float] = []
        self._telemetry = Telemetry(columns.device)

    @property
    def left_s(self) -> float:
        """Seconds that are left."""
        return float("inf") if self.within is None else self.started + self.within - self.now()

    def expected_s(self, cell: Cell) -> float:
        """Seconds that ``cell`` is thought to take, by what others took beside what was thought of them."""
        factor = median(self._factors) if self._factors else 1.0
        return order.seconds(cell, self.blocks) * factor

    def announce(self, cells: Sequence[Cell]) -> None:
        """Say on stderr how long each cell is thought to take, before any is begun."""
        todo = [cell for cell in cells if cell.key not in self.store.done]
        for cell in todo:
            print(f"{self.expected_s(cell):7.1f} s expected  {cell.key}", file=sys.stderr)
        total = sum(map(self.expected_s, todo))
        limit = "" if self.within is None else f", {max(0.0, self.left_s):.0f} s left"
        print(f"{total:7.1f} s expected for {len(todo)} cells{limit}", file=sys.stderr)

    def rows(self, cells: Sequence[Cell]) -> Iterator[Row]:
        """The rows of every cell that is stored or can be measured; what goes wrong with one stays with it."""
        for number, cell in enumerate(cells, 1):
            if cell.key in self.store.done:
                found = self.store.done[cell.key]
            elif self.expected_s(cell) > self.left_s:
                self.missing.append((cell, NO_TIME))
                continue
            else:
                found = self._measured(cell, f"{number}/{len(cells)} {cell.key}")
            failures = clock.statuses(found)
            for record in found:
                label = f"{record['arm']} {record['implementation']}: "
                own = [failure for failure in failures if failure.startswith(label)]
                yield Row(self.columns.values(record), self.columns.notes(record), [record], own)
            if capture.stopped() and self.store.path and number < len(cells):
                print(f"a capture failed ({capture.stopped()}): going on in a new process", file=sys.stderr)
                go_on(self.started)

    def _measured(self, cell: Cell, label: str) -> list[dict[str, Any]]:
        expected, began = order.seconds(cell, self.blocks), self.now()
        known = self.store.broken.get(cell.key, {})
        if self.store.given_up(cell.key):
            known = _all(cell, GIVEN_UP) | known
        blocks = cell.blocks or self.blocks
        progress = _Progress(label, blocks)
        self._telemetry.begin()

        def on_block(block: int) -> None:
            self._telemetry.sample(block)
            progress(block)

        self.store.begin(cell.key)
        how = dict(blocks=blocks, on_block=on_block)
        try:
            found = list(clock.measure_cell(cell, self.peaks_of(cell.dtype, cell.device), **how, known=known))
        except (KeyboardInterrupt, GeneratorExit):
            self.store.leave(cell.key)
            raise
        except Exception as error:
            if isinstance(error, DeviceLost) or lost(cell.device):
                self._go_on_without(cell, error)
                raise
            # nothing that is one arm's: its inputs, or its peaks
            found = list(clock.measure_cell(cell, NO_PEAKS, **how, known=_all(cell, status_of(error))))
        finally:
            progress.close()
        common = {"arms_in_cell": len(found), "telemetry": self._telemetry.summary(), "environment": self.environ}
        found = [record | common for record in found]
        self.store.finish(cell.key, found)
        self._factors.append((self.now() - began) / expected)
        return found

    def _go_on_without(self, cell: Cell, error: Exception) -> None:
        """A new process, which leaves out the arm that broke this one."""
        label = error.label if isinstance(error, DeviceLost) else "the cell"
        status = error.status if isinstance(error, DeviceLost) else status_of(error)
        self.store.break_off(cell.key, label, status)
        if not self.store.path:
            raise Unusable(f"{cell.key}: {label}: {status}; --json PATH lets a run go on in a new process") from error
        print(f"{cell.key}: {label}: {status}: going on in a new process", file=sys.stderr)
        go_on(self.started)

    def peaks_of(self, dtype: str, device: str) -> Peaks:
        """What shares and floors are of: measured once for each type, or those of named hardware."""
        if self.hardware:
            rate = self.hardware.macs_per_s[dtype]
            return Peaks(rate, self.hardware.bytes_per_s, f"{self.hardware.name}: {self.hardware.source}")
        if dtype not in self.peaks:
            self.peaks[dtype] = peaks.measure_peaks(device, DTYPES[dtype])
        return self.peaks[dtype]

    def remark(self) -> str:
        """What is missing, in a few words, for the line that ends a run."""
        return f"; {len(self.missing)} cells are missing" if self.missing else ""


def _all(cell: Cell, status: str) -> dict[str, str]:
    """The same status for every arm of ``cell``."""
    return {f"{spec.name} {spec.arm}": status for spec in cell.arms()}


class _Progress:
    """A bar over a cell's blocks on stderr, silent where that is no terminal or there is no tqdm."""

    def __init__(self, label: str, blocks: int) -> None:
        self.bar = None
        with suppress(ImportError):
            from tqdm import tqdm

            self.bar = tqdm(total=blocks, desc=label, unit="block", file=sys.stderr, leave=False, disable=None)

    def __call__(self, block: int) -> None:
        if self.bar is not None:
            self.bar.update()

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def write_json(path: Path, value: Any) -> None:
    """One readable JSON file. UsageError where it cannot be written."""
    made(path.parent)
    write(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")
