"""What the reports are written from: results of the bench commands, run here, and stored records."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from threading import Lock, Semaphore
from typing import Any

import headcount
from headcount.bench import records
from headcount.formulas.ledger import Entry, Ledger
from headcount.formulas.published import tables

ROOT = headcount.CHECKOUT
RECORDS = records.shipped()
GENERATED = ROOT / "reports" / "generated"


# Commands that run at a time.
_SLOTS = Semaphore(2)


class CommandFailed(Exception):
    """A bench command ended with an error; the message is its last line."""

    exit_code = 1


def once(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` that runs once for each set of arguments, whichever threads ask."""
    made: dict[tuple, Any] = {}
    locks: dict[tuple, Lock] = {}

    @wraps(function)
    def remembered(*args, **named):
        key = (args, tuple(sorted(named.items())))
        with locks.setdefault(key, Lock()):
            if key not in made:
                made[key] = function(*args, **named)
            return made[key]

    return remembered


@once
def command(*argv: str, **environ: str) -> str:
    """The stdout of ``python -m ARGV`` with some environment variables set; CommandFailed where it fails."""
    with _SLOTS:
        done = subprocess.run(
            [sys.executable, "-m", *argv], capture_output=True, text=True, cwd=ROOT, env={**os.environ, **environ}
        )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        raise CommandFailed(f"python -m {' '.join(argv)} exited {done.returncode}: {last}")
    return done.stdout


@once
def macs() -> dict[str, Any]:
    """Every published table, counted now."""
    return json.loads(command("bench.macs", "--check", "--format", "json"))


def published(name: str) -> dict[str, Any]:
    """The published table called ``name``, counted now: its rule and a row for each preset and counter."""
    return next(table for table in macs()["tables"] if table["name"] == name)


def command_times() -> dict[str, Any] | None:
    """pytest-benchmark's file of command times, None where none is stored."""
    return _stored("commands.json")


def mutants() -> dict[str, Any] | None:
    """The figures of the last ``make mutate``, None where none are stored."""
    return _stored("mutants.json")


def _stored(name: str) -> dict[str, Any] | None:
    path = RECORDS / name
    return json.loads(path.read_text("utf-8")) if path.exists() else None


@once
def grid(spec: str) -> dict[str, Any]:
    """A grid counted now by every counter."""
    return json.loads(command("bench.macs", "--check", "--grid", spec, "--format", "json"))["tables"][0]


@once
def moh_tables(form: str = "md") -> str:
    """The tables of the MoH paper and the dense anchors in closed form."""
    names = [name for name in tables.names() if name not in tables.names("moa")]
    return command("bench.macs", "--check", "--table", *names, "--counter", "closed-form", "--format", form)


def moh_published(name: str) -> dict[str, Any]:
    """One of those tables: a row for each preset."""
    return next(table for table in json.loads(moh_tables("json"))["tables"] if table["name"] == name)


@once
def audit() -> str:
    """Every spelling under every counter on cpu and meta, as markdown; a GPU is hidden, so that all machines agree."""
    return command("bench.macs", "--audit", "--format", "md", CUDA_VISIBLE_DEVICES="")


def stored(kind: str) -> list[dict[str, Any]]:
    """Every stored record of a kind; a line that is none is named on stderr."""
    found = []
    for path in sorted(RECORDS.glob("*/*.jsonl")):
        rows, problems = records.read(path)
        found += [row for row in rows if row.get("kind") == kind]
        for problem in problems:
            print(problem, file=sys.stderr)
    return found


def counted_layer(point: Mapping[str, int], form: str = "released") -> dict[str, Any]:
    """One layer of a grid, counted now by PyTorch's counter: the JSON record of the reading.

    ``form``: of MoH, ``released`` or ``ideal``. A point that :func:`count_layers` has not counted is counted
    by itself.
    """
    if _key(point) not in _COUNTED:
        count_layers([point])
    return next(row for row in _COUNTED[_key(point)] if row.get("form", "released") == form)


def count_layers(points: Sequence[Mapping[str, int]]) -> None:
    """Count layers of grids in one process, for :func:`counted_layer` to give them out."""
    specs = [" ".join(f"{letter}={size}" for letter, size in point.items()) for point in points]
    found = command("bench.macs", "--check", "--grid", *specs, "--counter", "torch", "--format", "json")
    for point, table in zip(points, json.loads(found)["tables"], strict=True):
        _COUNTED[_key(point)] = [row for row in table["rows"] if row["counter"] == "torch"]


_COUNTED: dict[frozenset[tuple[str, int]], list[dict[str, Any]]] = {}


def _key(point: Mapping[str, int]) -> frozenset[tuple[str, int]]:
    return frozenset(point.items())


@once
def ledgers(*presets: str) -> dict[str, Ledger]:
    """The exact ledgers of presets at their papers' lengths, by name."""
    found = json.loads(command("bench.macs", "--preset", *presets, "--counter", "closed-form", "--format", "json"))
    rows = {table["name"]: table["rows"][0] for table in found["tables"] if table["name"] in presets}
    return {name: ledger_from(row["ledger"]) for name, row in rows.items()}


def ledger_from(records: Sequence[dict[str, Any]]) -> Ledger:
    """The ledger that a JSON record holds."""
    fields = ("path", "kind", "dims", "times", "weight", "trainable")
    return Ledger(tuple(Entry(**{name: record[name] for name in fields}) for record in records))
