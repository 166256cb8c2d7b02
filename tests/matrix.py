"""``python -m tests.matrix [NAME …]``: run the core of the suite with other versions of Python and the dependencies.

Each cell is a virtual environment in build/matrix/ that later runs use again: torch 2.11 to 2.14 and the newest of the
index, the oldest version of everything that pyproject.toml allows, and each other Python of this machine. The output
of a cell's tests is in build/matrix/NAME.txt.
Exit codes: 0 every available cell passes; 1 one fails; 2 wrong usage. A Python that this machine lacks is named and
does not fail.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from headcount.bench.cli import Parser, run
from headcount.bench.errors import UsageError

PROG = "python -m tests.matrix"
ROOT = Path(__file__).parents[1]
STAGE = ROOT / "build" / "matrix"
CORE = (
    "tests/formulas", "tests/agreement", "tests/bench/contractions", "tests/bench/counters", "tests/bench/derive",
    "tests/bench/snapshot", "tests/bench/lock", "tests/models/test_attention_layers.py", "tests/models/test_build.py",
    "tests/headcount/test_public.py", "tests/headcount/test_portable.py",
)  # fmt: skip
"""What torch, the counters and Python can change."""
SUMMARY = "Python {python}, torch {torch}: {passed:,} passed, {skipped:,} skipped, {failed:,} failed, {seconds:,} s"
INSTALL_SECONDS, TEST_SECONDS = 1800, 5400


@dataclass(frozen=True)
class Cell:
    """An environment: a Python, "" for the one that runs this, and constraints of pip."""

    name: str
    python: str = ""
    constraints: tuple[str, ...] = ()

    @property
    def interpreter(self) -> str | None:
        """The Python to make it with; None where this machine has none, or only a name that does not start."""
        if not self.python:
            return sys.executable
        found = shutil.which(f"python{self.python}")
        return found if found and not subprocess.run([found, "--version"], capture_output=True).returncode else None


def project() -> dict:
    """The [project] table of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def oldest(requirements: Iterable[str]) -> tuple[str, ...]:
    """The lower bound of each requirement as the only version: ``torch>=2.11`` as ``torch==2.11``."""
    bounds = (re.match(r"([\w-]+)>=([\w.]+)", requirement) for requirement in requirements)
    return tuple(f"{bound[1]}=={bound[2]}" for bound in bounds if bound)


def cells() -> dict[str, Cell]:
    """Every environment by name."""
    pins = tuple(
        line
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and not line.startswith(("#", "torch"))
    )
    minors = ("2.11", "2.12", "2.13", "2.14")
    pythons = [c.rpartition(" ")[2] for c in project()["classifiers"] if re.search(r":: 3\.\d+$", c)]
    running = "{}.{}".format(*sys.version_info)
    extras = project()["optional-dependencies"]
    found = [Cell(f"torch-{minor}", constraints=(f"torch=={minor}.*", *pins)) for minor in minors]
    found.append(Cell("torch-newest", constraints=pins))
    found.append(
        Cell("oldest", constraints=oldest((*project()["dependencies"], *extras["report"], *extras["completion"])))
    )
    # the one that runs this is tried with each torch
    found += [Cell(f"python-{minor}", minor, ("torch==2.13.*", *pins)) for minor in pythons if minor != running]
    return {cell.name: cell for cell in found}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    out = Parser(prog=PROG, description=__doc__)
    out.add_argument("cells", nargs="*", metavar="NAME", help=", ".join(cells()))
    out.add_argument("--tests", nargs="+", metavar="PATH", default=CORE, help="other tests than the core")
    return out


def main(argv: Sequence[str] | None = None) -> int:
    """Make each environment, run the tests in it and print a line; the exit code."""
    return run(PROG, lambda: _main(parser().parse_args(argv)))


def _main(args: argparse.Namespace) -> int:
    known = cells()
    if unknown := [name for name in args.cells if name not in known]:
        raise UsageError(f"unknown {', '.join(unknown)}; choose from {', '.join(known)}")
    STAGE.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name in args.cells or known:
        passes, line = _run_tests(known[name], args.tests)
        failed += not passes
        print(f"{name:14} {line}", flush=True)
    print(f"{failed} of {len(args.cells or known)} fail" if failed else "every available cell passes")
    return 1 if failed else 0


def _run_tests(cell: Cell, tests: Sequence[str]) -> tuple[bool, str]:
    """Return whether a cell passes or is not available, and one line about it."""
    if cell.interpreter is None:
        return True, f"no python{cell.python} on this machine"
    started, home = time.perf_counter(), STAGE / cell.name
    python = home / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    constraints, results = STAGE / f"{cell.name}.in", STAGE / f"{cell.name}.xml"
    constraints.write_text("".join(f"{line}\n" for line in cell.constraints))
    results.unlink(missing_ok=True)
    with (STAGE / f"{cell.name}.txt").open("w") as log:

        def step(seconds: int, *command: str | Path) -> int:
            return subprocess.run(command, cwd=ROOT, stdout=log, stderr=log, timeout=seconds).returncode

        try:
            if not python.exists() and step(INSTALL_SECONDS, cell.interpreter, "-m", "venv", home):
                return False, f"no environment; see {log.name}"
            install = ("-m", "pip", "install", "--disable-pip-version-check", "-c", constraints, "-e", ".[test]")
            if step(INSTALL_SECONDS, python, *install):
                return False, f"cannot be installed; see {log.name}"
            options = ("-n", "2", "--dist", "loadfile", "-p", "no:benchmark", "-p", "no:cacheprovider")
            code = step(TEST_SECONDS, python, "-m", "pytest", *options, f"--junitxml={results}", *tests)
        except subprocess.TimeoutExpired as error:
            return False, f"not ready after {error.timeout:.0f} s; see {log.name}"
    if not results.exists():
        return False, f"no test ran; see {log.name}"
    found = {**versions(python), **counted(results), "seconds": round(time.perf_counter() - started)}
    return code == 0, SUMMARY.format(**found)


def versions(python: str | Path) -> dict[str, str]:
    """The versions of an environment's Python and torch."""
    ask = "import json, sys, torch; print(json.dumps(dict(python=sys.version.split()[0], torch=torch.__version__)))"
    return json.loads(subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout)


def counted(results: Path) -> dict[str, int]:
    """How many tests passed, were skipped, and failed or could not be begun, from pytest's JUnit file."""
    every, failed, skipped = 0, 0, 0
    for suite in ElementTree.parse(results).getroot().iter("testsuite"):
        every += int(suite.attrib["tests"])
        failed += int(suite.attrib["failures"]) + int(suite.attrib["errors"])
        skipped += int(suite.attrib["skipped"])
    return {"passed": every - failed - skipped, "skipped": skipped, "failed": failed}


if __name__ == "__main__":
    sys.exit(main())
