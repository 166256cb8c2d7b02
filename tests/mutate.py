"""``python -m tests.mutate [PATTERN …]``: change a room in one place at a time, and see whether its tests notice.

mutmut finds what it changes by the name that it is imported by, so it runs in a folder below build/mutation/ that is
laid out as a wheel is: headcount/ with the rooms in it, and the tests beside it. It exits 0 with survivors; this
command exits 1 for each survivor that is not listed in tests/equivalent_mutants.toml, with the reason why it is no
other program, and for each listed one that no longer survives. A mutant is known there by its function and the line it
has instead, so that the list outlives renumbering. What is the same to Python itself needs no reason.

A run can be ended and begun again: what was judged is not judged again, as long as neither the room nor its tests
have changed. ``--part 2/5`` runs one of five parts, file by file; when the last one is through, the figures of the
room are stored for CONTRIBUTING.md, which ``python -m reports`` fills. ``--again`` tries once more, on the files as
they are now, what no test had noticed: tests that grow need not notice everything anew. ``--changed COMMIT`` runs the
files alone that are not as they were there, and a PATTERN ('headcount.formulas.mha*') some mutants alone; neither is
stored. ``--sample N`` tries N mutants of the room, drawn by ``--seed``, where all are too many.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from headcount.bench.cli import Parser, run
from headcount.bench.env import commit, machine
from headcount.bench.errors import EnvironmentMissing, UsageError
from tests.mutation_stage import ROOMS, ROOT, Stage, files_of

PROG = "python -m tests.mutate"
LISTED = ROOT / "tests" / "equivalent_mutants.toml"
RECORD = ROOT / "reports" / "records" / "mutants.json"
NOTICED = ("killed", "timeout", "segfault")
"""What mutmut calls a mutant that fails a test, or with which the tests never end or end in a crash."""

SKIPPED, NONE = 34, "no mutant is called so"
"""mutmut's exit code of a mutant that is not to be tried; and a name."""

Listed = Mapping[str, Mapping[str, str]]
"""Function -> mutated line -> why that is no other program."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    out = Parser(prog=PROG, description=__doc__)
    out.add_argument("patterns", metavar="PATTERN", nargs="*", help="mutants by name, with * and ?")
    out.add_argument("--room", choices=ROOMS, default="formulas", help="whose files are changed (formulas)")
    only = out.add_mutually_exclusive_group()
    only.add_argument("--part", metavar="I/N", type=_part, default=(1, 1), help="one of N parts of the room")
    out.add_argument("--again", action="store_true", help="once more what was not noticed, after tests were added")
    only.add_argument("--changed", metavar="COMMIT", help="only files that are not as they were at COMMIT")
    only.add_argument("--sample", metavar="N", type=_number, help="only N mutants of the room, drawn at random")
    out.add_argument("--seed", metavar="N", type=_number, default=1, help="another seed draws other ones (1)")
    return out


def main(argv: Sequence[str] | None = None) -> int:
    """Run mutmut on a room, a part of it, or the mutants that are named, and judge its results."""
    return run(PROG, lambda: _main(parser().parse_args(argv)))


def _part(text: str) -> tuple[int, int]:
    index, _, parts = text.partition("/")
    if not (index.isdecimal() and parts.isdecimal() and 1 <= int(index) <= int(parts)):
        raise argparse.ArgumentTypeError(f"a part is I/N with 1 <= I <= N, not {text!r}")
    return int(index), int(parts)


def _number(text: str) -> int:
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"a whole number from 1 on expected, not {text!r}")
    return int(text)


def _main(args: argparse.Namespace) -> int:
    if args.sample:
        stage = Stage(args.room, f"{args.room}-{args.sample}-by-{args.seed}", files_of(args.room))
    elif args.changed:
        stage = Stage(args.room, f"{args.room}-changed", changed(args.room, args.changed))
    else:
        index, parts = args.part
        stage = Stage(args.room, f"{args.room}-{index}-of-{parts}", divided(files_of(args.room), parts)[index - 1])
    if not stage.files:
        print("0 mutants: no file has changed")
        return 0
    seconds = stage.renew(noticed) if args.again else stage.lay_out()
    started = time.perf_counter()
    try:
        collect(stage, args.again)
        if args.sample:
            draw(stage, args.sample, args.seed)
        _mutmut(stage.folder, "run", *args.patterns)
    finally:
        seconds = stage.worked(seconds + time.perf_counter() - started)
    found, failures = judged(stage, args.patterns, seconds)
    for failure in failures:
        print(f"{PROG}: {failure}", file=sys.stderr)
    print(f"{found['mutants']:,} mutants, {found['alive']} alive, {len(failures)} unexplained, {seconds:.0f} s")
    if args.sample and not args.patterns:
        write(args.room, {**found, "seed": args.seed})
    elif not (args.patterns or args.changed):
        stage.keep(found)
        store(args.room, args.part[1], stage.inputs)
    return 1 if failures else 0


def collect(stage: Stage, again: bool) -> None:
    """Make the mutants of a stage and find the tests of each; once a stage, or ``again`` what has changed of them."""
    if again or not stage.statistics.exists():
        try:
            # mutmut does this before it sees that no mutant is called so
            _mutmut(stage.folder, "run", NONE)
        except EnvironmentMissing:
            if not stage.statistics.exists():
                raise
    # also of a run that was ended before it came here
    stage.add_unseen()


def draw(stage: Stage, number: int, seed: int) -> None:
    """Leave ``number`` of a stage's mutants to be tried, drawn by ``seed`` from all of them by name; once a stage.
    Where functions have changed since, what was drawn stays drawn, and others take the place of what is no more."""
    names = sorted(stage.codes())
    chosen = sorted(set(stage.drawn()).intersection(names))
    others = sorted(set(names).difference(chosen))
    chosen += random.Random(seed).sample(others, max(0, min(number, len(names)) - len(chosen)))
    stage.skip(SKIPPED, chosen)


def noticed(code: int | None) -> bool:
    """Whether a test failed with a mutant, from the exit code that mutmut keeps of it."""
    return code in (1, 3)


def judged(stage: Stage, patterns: Sequence[str], seconds: float) -> tuple[dict[str, Any], list[str]]:
    """The figures of what mutmut found in a stage, and what is wrong with it."""
    everything = read_results(_mutmut(stage.folder, "results", "--all", "true"))
    statuses = {name: status for name, status in everything.items() if status != "skipped"}
    drawn = len(statuses) < len(everything)
    listed = tomllib.loads(LISTED.read_text())
    if patterns:
        statuses = {name: status for name, status in statuses.items() if any(fnmatch(name, p) for p in patterns)}
        asked = {function_of(name) for name in statuses}
    else:
        asked = {function for function in listed if function.startswith(stage.modules)}
    failures = judge(
        statuses,
        lambda name: _mutmut(stage.folder, "show", name),
        {function: lines for function, lines in listed.items() if function in asked},
        # a listed line that was not drawn says nothing
        stale=not drawn,
    )
    found = {
        "mutants": len(statuses),
        **({"of": len(everything)} if drawn else {}),
        "statuses": dict(Counter(statuses.values())),
        "alive": sum(status not in NOTICED for status in statuses.values()),
        "unexplained": len(failures),
        "seconds": round(seconds),
    }
    return found, failures


def divided(files: Sequence[Path], parts: int) -> list[list[Path]]:
    """``files`` in as many parts of about as many bytes; the same ones on every machine."""
    out: list[list[Path]] = [[] for _ in range(parts)]
    sizes = [0] * parts
    for path in sorted(files, key=lambda path: (-path.stat().st_size, path)):
        least = sizes.index(min(sizes))
        out[least].append(path)
        sizes[least] += path.stat().st_size
    return out


def changed(room: str, base: str) -> list[Path]:
    """The files of a room that are not as they were at a commit. UsageError where there is no such commit."""
    git = ["git", "diff", "--name-only", base, "--", room]
    done = subprocess.run(git, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise UsageError(f"--changed takes a commit, not {base!r}")
    names = set(done.stdout.split())
    return [path for path in files_of(room) if path.relative_to(ROOT).as_posix() in names]


def store(room: str, parts: int, inputs: str) -> None:
    """Store the figures of a room whose last part is through: sums over parts that were run on the same files."""
    found = [Stage(room, f"{room}-{index}-of-{parts}", ()).kept(inputs) for index in range(1, parts + 1)]
    if None in found:
        return
    statuses: Counter[str] = Counter()
    for part in found:
        statuses.update(part["statuses"])
    sums = {name: sum(part[name] for part in found) for name in ("mutants", "alive", "unexplained", "seconds")}
    write(room, {**sums, "statuses": dict(statuses)})


def write(room: str, found: Mapping[str, Any]) -> None:
    """Store the figures of a room, with the machine and the commit."""
    rooms = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    rooms[room] = {**found, "machine": machine(), "commit": commit()}
    RECORD.write_text(json.dumps(rooms, indent=2) + "\n")


def _mutmut(folder: Path, *argv: str) -> str:
    # a run takes many minutes: whoever sits before it sees how far it is
    shown = argv[0] == "run" and sys.stderr.isatty()
    try:
        command = [str(Path(sys.executable).parent / "mutmut"), *argv]
        pipe = sys.stderr if shown else subprocess.PIPE
        # processes that tests start are to find the mutants too
        env = {**os.environ, "PYTHONPATH": str(folder / "mutants")}
        done = subprocess.run(command, stdout=pipe, stderr=pipe, text=True, cwd=folder, env=env)
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
    return _side(diff, "+")


def _side(diff: str, sign: str) -> str:
    lines = (line for line in diff.splitlines() if line.startswith(sign) and not line.startswith(3 * sign))
    return " ".join(line[1:].strip() for line in lines)


def alike(diff: str) -> bool:
    """Whether it makes no difference to Python, wherever it stands: a zip that is not strict need not say so."""
    before, after = (re.sub(r", (strict=(False|None))?(?=\))", "", _side(diff, sign)) for sign in "-+")
    return before == after


def judge(statuses: Mapping[str, str], diff_of: Callable[[str], str], listed: Listed, stale: bool = True) -> list[str]:
    """What is wrong: mutants that no test noticed and no reason excuses, and with ``stale`` reasons without such a
    mutant."""
    diffs = {name: diff_of(name) for name, status in statuses.items() if status not in NOTICED}
    alive = {name: mutated_line(diff) for name, diff in diffs.items() if not alike(diff)}
    reasons = {(function, line) for function, lines in listed.items() for line in lines}
    known = {(function_of(name), line) for name, line in alive.items()}
    failures = [
        f"{name}: {statuses[name]}: {line}" for name, line in alive.items() if (function_of(name), line) not in reasons
    ]
    unneeded = sorted(reasons - known) if stale else []
    return failures + [f"{function}: listed as equivalent, and does not survive: {line}" for function, line in unneeded]


if __name__ == "__main__":
    sys.exit(main())
