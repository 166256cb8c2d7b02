"""``python -m bench.mutate``: change formulas/ in one place at a time, and see whether its tests notice (mutmut).

mutmut itself exits 0 with survivors. This command exits 1 for each survivor that is not listed, with the reason
why it is no other program, in bench/equivalent_mutants.toml, and for each listed one that no longer survives.
"""

import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path

from bench.cli import run
from bench.errors import EnvironmentMissing

PROG = "python -m bench.mutate"
LISTED = Path(__file__).parent / "equivalent_mutants.toml"
SURVIVING = ("survived", "no tests", "timeout", "suspicious", "segfault")
"""What mutmut calls a mutant that no test has killed."""


def main() -> int:
    """Run mutmut on formulas/ and judge its results."""
    return run(PROG, _main)


def _main() -> int:
    started = time.perf_counter()
    _mutmut("run")
    statuses = read_results(_mutmut("results", "--all", "true"))
    seconds = time.perf_counter() - started
    failures = judge(statuses, tomllib.loads(LISTED.read_text("utf-8")))
    for failure in failures:
        print(f"{PROG}: {failure}", file=sys.stderr)
    alive = sum(status in SURVIVING for status in statuses.values())
    print(f"{len(statuses):,} mutants, {alive} alive, {len(failures)} unexplained, {seconds:.0f} s")
    return 1 if failures else 0


def _mutmut(*argv: str) -> str:
    try:
        done = subprocess.run([str(Path(sys.executable).parent / "mutmut"), *argv], capture_output=True, text=True)
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


def judge(statuses: Mapping[str, str], listed: Mapping[str, str]) -> list[str]:
    """What is wrong: survivors without a reason, and reasons without a survivor."""
    alive = {name: status for name, status in statuses.items() if status in SURVIVING}
    lines = [f"{name}: {status}; mutmut show {name}" for name, status in alive.items() if name not in listed]
    return lines + [f"{name} is listed as equivalent, and does not survive" for name in listed if name not in alive]


if __name__ == "__main__":
    sys.exit(main())
