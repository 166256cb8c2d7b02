"""``python -m tests.mutate [PATTERN …]``: change formulas/ in one place at a time, and see whether its tests notice.

mutmut finds what it changes by the name that it is imported by, so it runs in build/mutation/, which is laid out as a
wheel is: headcount/ with the rooms in it, and the tests beside it. It exits 0 with survivors; this command exits 1 for
each survivor that is not listed in tests/equivalent_mutants.toml, with the reason why it is no other program, and for
each listed one that no longer survives. A mutant is known there by its function and the line it has instead, so that
the list outlives renumbering. Every run starts from nothing, and the figures of a whole one are stored for
CONTRIBUTING.md, which ``python -m reports`` fills. A PATTERN ('headcount.formulas.mha*') runs some mutants alone.
"""

import json
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

from headcount.bench.cli import run
from headcount.bench.env import commit, machine
from headcount.bench.errors import EnvironmentMissing

PROG = "python -m tests.mutate"
ROOT = Path(__file__).parents[1]
STAGE = ROOT / "build" / "mutation"
ROOMS = ("formulas", "models", "bench")
TESTS = ("conftest.py", "tally.py", "formulas", "agreement")
LISTED = ROOT / "tests" / "equivalent_mutants.toml"
RECORD = ROOT / "reports" / "records" / "mutants.json"
NOTICED = ("killed", "timeout", "segfault")
"""What mutmut calls a mutant that fails a test, or with which the tests never end or end in a crash."""

Listed = Mapping[str, Mapping[str, str]]
"""Function -> mutated line -> why that is no other program."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run mutmut on formulas/, or on the mutants that ``argv`` names, and judge its results."""
    patterns = list(sys.argv[1:] if argv is None else argv)
    return run(PROG, lambda: _main(patterns))


def _main(patterns: Sequence[str]) -> int:
    started = time.perf_counter()
    stage(STAGE)
    _mutmut("run", *patterns)
    statuses = read_results(_mutmut("results", "--all", "true"))
    listed = tomllib.loads(LISTED.read_text())
    if patterns:
        statuses = {name: status for name, status in statuses.items() if any(fnmatch(name, p) for p in patterns)}
        functions = {function_of(name) for name in statuses}
        listed = {function: lines for function, lines in listed.items() if function in functions}
    seconds = time.perf_counter() - started
    failures = judge(statuses, lambda name: mutated_line(_mutmut("show", name)), listed)
    for failure in failures:
        print(f"{PROG}: {failure}", file=sys.stderr)
    alive = sum(status not in NOTICED for status in statuses.values())
    found = {
        "mutants": len(statuses),
        "statuses": dict(Counter(statuses.values())),
        "alive": alive,
        "unexplained": len(failures),
        "seconds": round(seconds),
        "machine": machine(),
        "commit": commit(),
    }
    if not patterns:
        RECORD.write_text(json.dumps(found, indent=2) + "\n")
    print(f"{len(statuses):,} mutants, {alive} alive, {len(failures)} unexplained, {seconds:.0f} s")
    return 1 if failures else 0


def stage(folder: Path) -> None:
    """Lay out ``folder`` as an installed copy, from nothing: mutmut keeps the results of functions that have not
    changed, whatever became of their tests."""
    shutil.rmtree(folder, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "headcount", folder / "headcount", ignore=ignored)
    for room in ROOMS:
        shutil.copytree(ROOT / room, folder / "headcount" / room, ignore=ignored)
    (folder / "tests").mkdir()
    for name in TESTS:
        copy = shutil.copy if (ROOT / "tests" / name).is_file() else partial(shutil.copytree, ignore=ignored)
        copy(ROOT / "tests" / name, folder / "tests" / name)
    shutil.copy(ROOT / "pyproject.toml", folder)


def _mutmut(*argv: str) -> str:
    # a run takes many minutes: whoever sits before it sees how far it is
    shown = argv[0] == "run" and sys.stderr.isatty()
    try:
        command = [str(Path(sys.executable).parent / "mutmut"), *argv]
        pipe = sys.stderr if shown else subprocess.PIPE
        done = subprocess.run(command, stdout=pipe, stderr=pipe, text=True, cwd=STAGE)
    except FileNotFoundError:
        raise EnvironmentMissing("mutmut is not installed; pip install -e '.[mutate]'") from None
    if done.returncode:
        last = "" if shown else (done.stdout + done.stderr).strip().splitlines()[-1]
        raise EnvironmentMissing(f"mutmut {argv[0]} exited {done.returncode}: {last}")
    return done.stdout or ""


def read_results(text: str) -> dict[str, str]:
    """Mutant -> status, from the lines ``name: status`` that mutmut prints."""
    pairs = (line.strip().rpartition(": ") for line in text.splitlines())
    return {name: status for name, separator, status in pairs if separator}


def function_of(mutant: str) -> str:
    """The dotted name of the function that a mutant changes, ``headcount.formulas.ledger.Entry.macs``."""
    module, _, name = mutant.rpartition(".")
    name = name.rpartition("__mutmut_")[0].removeprefix("x").removeprefix("_")
    return f"{module}.{name.strip('ǁ').replace('ǁ', '.')}"


def mutated_line(diff: str) -> str:
    """What a mutant has instead, on one line, from the diff that mutmut shows."""
    added = [line[1:].strip() for line in diff.splitlines() if line.startswith("+") and not line.startswith("+++")]
    return " ".join(added)


def judge(statuses: Mapping[str, str], line_of: Callable[[str], str], listed: Listed) -> list[str]:
    """What is wrong: mutants that no test noticed and no reason excuses, and reasons without such a mutant."""
    alive = {name: line_of(name) for name, status in statuses.items() if status not in NOTICED}
    reasons = {(function, line) for function, lines in listed.items() for line in lines}
    known = {(function_of(name), line) for name, line in alive.items()}
    failures = [
        f"{name}: {statuses[name]}: {line}" for name, line in alive.items() if (function_of(name), line) not in reasons
    ]
    unneeded = sorted(reasons - known)
    return failures + [f"{function}: listed as equivalent, and does not survive: {line}" for function, line in unneeded]


if __name__ == "__main__":
    sys.exit(main())
