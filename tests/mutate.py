"""``python -m bench.mutate``: change formulas/ in one place at a time, and see whether its tests notice (mutmut).

mutmut itself exits 0 with survivors. This command exits 1 for each survivor that is not listed in
bench/equivalent_mutants.toml, with the reason why it is no other program, and for each listed one that no longer
survives. A mutant is known there by its function and the line it has instead, so that the list outlives renumbering.
Every run starts from nothing, and its figures are stored for CONTRIBUTING.md, which ``python -m reports`` fills.
"""

import json
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from headcount.bench.cli import run
from headcount.bench.env import commit, machine
from headcount.bench.errors import EnvironmentMissing

PROG = "python -m bench.mutate"
ROOT = Path(__file__).parents[1]
LISTED = ROOT / "bench" / "equivalent_mutants.toml"
RECORD = ROOT / "reports" / "records" / "mutants.json"
NOTICED = ("killed", "timeout", "segfault")
"""What mutmut calls a mutant that fails a test, or with which the tests never end or end in a crash."""

Listed = Mapping[str, Mapping[str, str]]
"""Function -> mutated line -> why that is no other program."""


def main() -> int:
    """Run mutmut on formulas/ and judge its results."""
    return run(PROG, _main)


def _main() -> int:
    started = time.perf_counter()
    # mutmut keeps the results of functions that have not changed, whatever became of their tests
    shutil.rmtree(ROOT / "mutants", ignore_errors=True)
    _mutmut("run")
    statuses = read_results(_mutmut("results", "--all", "true"))
    seconds = time.perf_counter() - started
    failures = judge(statuses, lambda name: mutated_line(_mutmut("show", name)), tomllib.loads(LISTED.read_text()))
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
    RECORD.write_text(json.dumps(found, indent=2) + "\n")
    print(f"{len(statuses):,} mutants, {alive} alive, {len(failures)} unexplained, {seconds:.0f} s")
    return 1 if failures else 0


def _mutmut(*argv: str) -> str:
    try:
        command = [str(Path(sys.executable).parent / "mutmut"), *argv]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    except FileNotFoundError:
        raise EnvironmentMissing("mutmut is not installed; pip install -e '.[mutate]'") from None
    if done.returncode:
        last = (done.stdout + done.stderr).strip().splitlines()[-1]
        raise EnvironmentMissing(f"mutmut {argv[0]} exited {done.returncode}: {last}")
    return done.stdout


def read_results(text: str) -> dict[str, str]:
    """Mutant -> status, from the lines ``name: status`` that mutmut prints."""
    pairs = (line.strip().rpartition(": ") for line in text.splitlines())
    return {name: status for name, separator, status in pairs if separator}


def function_of(mutant: str) -> str:
    """The dotted name of the function that a mutant changes, ``formulas.rounding.Printing.like``."""
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
