"""What a run has behind it: finished cells, arms that broke the device, and cells that ended the process.

All of it is in one file of records, so that a run goes on where another left off, in a new process or on a new machine.
"""

import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from headcount.bench import records
from headcount.bench.table import shown

ROW, BEGUN, LEFT, BROKEN = "latency", "latency-begun", "latency-left", "latency-broken"
MOST_ATTEMPTS = 2
"""A cell that has ended the process so often is not begun again."""
GIVEN_UP = f"failed: ended the process {MOST_ATTEMPTS} times"
STARTED = "HEADCOUNT_LATENCY_STARTED"
"""When the run began, for a process that goes on with it: seconds since the epoch."""


class Store:
    """The records of one file; nothing is kept without a ``path``."""

    def __init__(self, path: Path | None) -> None:
        """Read ``path``; of lines that are no records the first is named on stderr."""
        self.path = path
        self.done: dict[str, list[dict[str, Any]]] = {}
        self.broken: dict[str, dict[str, str]] = {}
        self._begun: Counter[str] = Counter()
        found, problems = records.read(path) if path and path.exists() else ([], [])
        if problems:
            print(shown(records.briefly(problems)), file=sys.stderr)
        rows: dict[str, list[dict[str, Any]]] = {}
        for record in found:
            kind, cell = record.get("kind"), record.get("cell")
            if kind == ROW:
                rows.setdefault(cell, []).append(record)
            elif kind == BEGUN:
                self._begun[cell] += 1
            elif kind == LEFT:
                self._begun[cell] -= 1
            if kind == BROKEN:
                self.broken.setdefault(cell, {})[record["label"]] = record["status"]
        for cell, own in rows.items():
            if whole := _last_whole(own):
                self.done[cell] = whole

    def ready(self, cells: Iterable[str]) -> None:
        """UsageError where one of ``cells`` is not done and no record of it can be added."""
        if any(cell not in self.done for cell in cells):
            self._append()

    def given_up(self, cell: str) -> bool:
        """Whether ``cell`` has ended the process too often."""
        # an attempt that found an arm to leave out was not in vain
        in_vain = self._begun[cell] - len(self.broken.get(cell, {}))
        return cell not in self.done and in_vain >= MOST_ATTEMPTS

    def begin(self, cell: str) -> None:
        """Say that ``cell`` is being measured."""
        self._append({"kind": BEGUN, "cell": cell})

    def leave(self, cell: str) -> None:
        """Say that ``cell`` was left before its end, through no fault of its own."""
        self._append({"kind": LEFT, "cell": cell})

    def break_off(self, cell: str, label: str, status: str) -> None:
        """Say that arm ``label`` of ``cell`` left the device unusable."""
        self._append({"kind": BROKEN, "cell": cell, "label": label, "status": status})
        self.broken.setdefault(cell, {})[label] = status

    def finish(self, cell: str, rows: Sequence[dict[str, Any]]) -> None:
        """Keep the rows of a finished cell."""
        self.done[cell] = list(rows)
        self._append(*rows)

    def _append(self, *found: dict[str, Any]) -> None:
        if self.path:
            records.append(self.path, *found)


def _last_whole(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The newest rows of a cell that one run stored of all its arms; none where every run was broken off before.

    Rows in a row are of one run where they are of one time and no arm is there twice.
    """
    for end in range(len(rows), 0, -1):
        count = rows[end - 1].get("arms_in_cell")
        own = rows[max(0, end - count) : end] if isinstance(count, int) and count > 0 else []
        arms = {(row.get("arm"), row.get("implementation"), row.get("role")) for row in own}
        times = {(row.get("environment") or {}).get("time") for row in own}
        if own and len(arms) == count == len(own) and len(times) == 1:
            return own
    return []


def go_on(started: float) -> None:
    """Replace this process by a new one with the same command, which finds what is stored."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.environ[STARTED] = repr(started)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
