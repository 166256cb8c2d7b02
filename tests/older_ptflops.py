"""``python -m tests.older_ptflops [VERSION …]``: count the same modules with other versions of ptflops.

Each version is installed from the index into build/ptflops/, and counts every formulation of the audit and the models
of the MoA tables on the CPU in a separate process, as a user would call it. The reported counts are written to
reports/records/ptflops.json, which the report's table shows. Exit codes: 0 success; 2 wrong usage; 3 a version that
cannot be installed.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from headcount.bench.cli import Parser, run
from headcount.bench.errors import EnvironmentMissing

PROG = "python -m tests.older_ptflops"
ROOT = Path(__file__).parents[1]
STAGE = ROOT / "build" / "ptflops"
RECORD = ROOT / "reports" / "records" / "ptflops.json"
OF_THE_PAPERS = "0.6.9"
"""The newest version when both papers were written."""


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    out = Parser(prog=PROG, description=__doc__)
    out.add_argument("versions", metavar="VERSION", nargs="*", type=_version, default=[OF_THE_PAPERS])
    return out


def _version(text: str) -> str:
    if not re.fullmatch(r"\d+(\.\d+)+", text):
        raise argparse.ArgumentTypeError(f"a version is numbers with points between, not {text!r}")
    return text


def main(argv: Sequence[str] | None = None) -> int:
    """Count with each version and with the installed one, and store the counts."""
    return run(PROG, lambda: _main(parser().parse_args(argv)))


def _main(args: argparse.Namespace) -> int:
    found = [_count_with(place) for place in [*map(install, args.versions), None]]
    exact = {name: macs for name, _, _, macs in subjects()}
    stored = {"torch": version("torch"), "models": models(), "exact": exact, "readings": found}
    RECORD.write_text(json.dumps(stored, indent=1) + "\n")
    print(f"{len(exact)} modules counted by ptflops {', '.join(one['version'] for one in found)}")
    return 0


def install(wanted: str) -> Path:
    """Install the version if its folder is missing, and return the folder. Raises EnvironmentMissing."""
    place = STAGE / wanted
    if not place.exists():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(place), f"ptflops=={wanted}"]
        done = subprocess.run(pip, capture_output=True, text=True)
        if done.returncode:
            raise EnvironmentMissing(f"ptflops {wanted} cannot be installed: {done.stderr.strip().splitlines()[-1]}")
    return place


def _count_with(place: Path | None) -> dict[str, Any]:
    paths = [*([str(place)] if place else []), str(ROOT)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    child = [sys.executable, "-c", "from tests import older_ptflops; older_ptflops.answer()"]
    done = subprocess.run(child, env=env, cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def answer() -> None:
    """Print, as the last line, the version of this process and its counts."""
    print(json.dumps({"version": version("ptflops"), "macs": {name: count_macs(*of) for name, *of, _ in subjects()}}))


def models() -> list[str]:
    """Return the presets of the MoA tables."""
    from headcount.formulas.published import tables

    rows = [row.preset for name in tables.names(paper="moa") for row in tables.load(name).rows]
    return list(dict.fromkeys(rows))


def subjects() -> Iterator[tuple[str, Any, Mapping[str, Any], int]]:
    """Yield the name of each module, the module, its inputs by name and its exact MACs."""
    from headcount.bench.case import Case
    from headcount.bench.formulations.catalog import FORMULATIONS
    from headcount.models.build import build, example_inputs

    for one in FORMULATIONS:
        yield (one.name, *one.build("cpu"), one.exact.macs)
    for name in models():
        case = Case.of(name)
        module = build(case.config, initialise=False)
        yield name, module, example_inputs(case.config, case.lengths), case.ledger.macs


def count_macs(module: Any, inputs: Mapping[str, Any]) -> int | None:
    """Return the MACs of the whole batch by the default backend; None where ptflops fails."""
    import torch._dynamo  # noqa: F401
    from ptflops import get_model_complexity_info

    from headcount.bench.counters.ptflops_run import _KeywordInputs

    named = {f"input_{i}": tensor for i, tensor in enumerate(inputs.values())}
    options = {"print_per_layer_stat": False, "as_strings": False, "input_constructor": lambda _: named}
    try:
        macs, _ = get_model_complexity_info(_KeywordInputs(module), (1,), **options)
    except Exception:
        return None
    return None if macs is None else int(macs)


if __name__ == "__main__":
    sys.exit(main())
