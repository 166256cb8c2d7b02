"""``python -m tests.faults [WORD …]``: every fault that is tried on commands, the dear ones too, stored for the report.

WORDs choose tests by name, as pytest's -k does; then those faults are stored anew of which every test was chosen.
"""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import headcount
from headcount.bench.env import commit, machine

RECORD = headcount.CHECKOUT / "reports" / "records" / "faults.json"


class Tried:
    """What pytest is told to remember: for each fault the commands, how often it was tried, and what did not hold."""

    def __init__(self) -> None:
        self.faults: dict[tuple[str, str], dict[str, Any]] = {}
        self.in_part: set[tuple[str, str]] = set()
        self.order: list[tuple[str, str]] = []

    def pytest_itemcollected(self, item):
        """The order of all faults, chosen or not."""
        if (mark := item.get_closest_marker("fault")) and mark.args not in self.order:
            self.order.append(mark.args)

    def pytest_deselected(self, items):
        """Faults of which a test was not chosen."""
        marks = (item.get_closest_marker("fault") for item in items)
        self.in_part.update(mark.args for mark in marks if mark)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item, call):
        """One report of one test."""
        report = (yield).get_result()
        mark = item.get_closest_marker("fault")
        if mark is None or not (report.when == "call" or report.skipped or report.failed):
            return
        fault, then = mark.args
        empty = {"fault": fault, "then": then, "commands": [], "tries": 0, "held": 0, "failed": [], "not_tried": []}
        found = self.faults.setdefault((fault, then), empty)
        command = item.callspec.params.get("command", item.name) if hasattr(item, "callspec") else item.name
        number = next((value for name, value in item.user_properties if name == "tries"), 1)
        if report.skipped:
            found["not_tried"].append({"command": command, "why": str(report.longrepr[2]).removeprefix("Skipped: ")})
            return
        if command not in found["commands"]:
            found["commands"].append(command)
        found["tries"] += number
        if report.passed:
            found["held"] += number
        else:
            found["failed"].append(item.name)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the faults; 1 where one was not survived."""
    words = list(sys.argv[1:] if argv is None else argv)
    tried, started = Tried(), time.perf_counter()
    chosen = ["-k", " or ".join(words)] if words else []
    # what this file imports was imported before pytest could rewrite it
    options = [
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
        "-W",
        "ignore::pytest.PytestUnraisableExceptionWarning",
    ]
    options += ["-p", "no:benchmark", "-p", "no:cacheprovider", "-m", "fault", "--rootdir", str(headcount.CHECKOUT)]
    try:
        code = pytest.main([str(Path(__file__).parent), *options, *chosen], plugins=[tried])
    finally:
        store(tried, round(time.perf_counter() - started))
    return 1 if code else 0


def store(tried: Tried, seconds: int) -> None:
    """Keep what was found of each fault that was tried whole, in the place of what was found before, and what all of
    them took."""
    before = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {"faults": [], "seconds": 0}
    known = {(one["fault"], one["then"]): one for one in before["faults"]}
    new = {key: one | {"commit": commit()} for key, one in tried.faults.items() if key not in tried.in_part}
    if not new:
        return
    # all at once are a run by itself
    seconds += before["seconds"] if known.keys() - new.keys() else 0
    found = known | new
    faults = [found[key] for key in tried.order if key in found]
    text = json.dumps({"faults": faults, "seconds": seconds, "machine": machine()}, indent=2, ensure_ascii=False)
    RECORD.write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
