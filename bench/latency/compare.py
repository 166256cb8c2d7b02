"""``python -m bench.latency compare A B``: compare two record files row by row."""

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from headcount.bench import records
from headcount.bench.cli import Parser, add_output
from headcount.bench.column import TONES, Column, escape_controls, plural
from headcount.bench.errors import UsageError
from headcount.bench.latency.statistics import Ratio, quantile, unpaired_ratio, verdict
from headcount.bench.result import Result, Row, Table, columns_of, shown

PROG = "python -m bench.latency compare"


def parser(prog: str) -> argparse.ArgumentParser:
    """Return the command line of bench.latency compare."""
    out = Parser(prog=prog, description="B over A, row by row: faster, slower or no difference measured")
    out.add_argument("a", metavar="A", type=Path, help="records of a run, JSON lines")
    out.add_argument("b", metavar="B", type=Path, help="records of another run")
    out.add_argument("--force", action="store_true", help="compare records of different devices")
    add_output(out)
    return out


@dataclass(frozen=True)
class ComparedRow(Row):
    """A row of both files: its median times, and B's time over A's with its interval."""

    cell: str = shown(Column, "case", code=True)
    row: str = shown(Column, "layer and implementation", priority=0, code=True)
    a_ms: float = shown(Column, "A", "ms", kind="fixed", digits=3)
    b_ms: float = shown(Column, "B", "ms", kind="fixed", digits=3)
    ratio: Mapping[str, float] = shown(Column, "B / A", kind="interval", digits=2, priority=0)
    verdict: str = shown(Column, "B is", priority=0, tones=TONES)


def command(args: argparse.Namespace, argv: Sequence[str] = ()) -> Result:
    """Return the table of the rows that are in both files."""
    rows, only_a, only_b = compare(_load(args.a), _load(args.b), force=args.force)
    table = Table(
        "compare",
        f"{args.b} against {args.a}",
        columns_of(ComparedRow),
        rows,
        above=["Medians of separate runs: drift between them is not seen, which one run excludes."],
        below=[f"only in A: {plural(only_a, 'row')}; only in B: {plural(only_b, 'row')}."],
    )
    return Result([table], lambda: _sentence(rows))


def _sentence(rows: Sequence[ComparedRow]) -> str:
    """Return how many rows have each verdict."""
    each = ", ".join(f"{number} {verdict}" for verdict, number in Counter(row.verdict for row in rows).items())
    return f"B against A, {plural(len(rows), 'row')}: {each}."


def _load(path: Path) -> list[records.LatencyRecord]:
    found, problems = records.read_latencies(path)
    timed = [record for record in found if record.wall_ms]
    if not timed:
        raise UsageError(f"{path} holds no timed rows" + (f": {records.briefly(problems)}" if problems else ""))
    if problems:
        print(escape_controls(f"{PROG}: {records.briefly(problems)}"), file=sys.stderr)
    return timed


def compare(
    a: Sequence[records.LatencyRecord], b: Sequence[records.LatencyRecord], *, force: bool = False
) -> tuple[list[ComparedRow], int, int]:
    """Return the rows in both files with B's time over A's, and the numbers of rows in A only and in B only.

    The noise floor is the wider one of the two runs, of samples of the compared kind where recorded.

    UsageError for different devices without ``force``, and where no row is in both.
    """
    devices = [sorted({record.environment["device"] for record in rows}) for rows in (a, b)]
    if devices[0] != devices[1] and not force:
        raise UsageError(
            f"A was measured on {', '.join(devices[0])}, B on {', '.join(devices[1])}; --force compares them"
        )
    # the newest record of each row
    left, right = ({(r.cell, f"{r.layer} {r.implementation}"): r for r in rows} for rows in (a, b))
    both = [key for key in left if key in right]
    if not both:
        raise UsageError("the two files have no row in common")
    rows = []
    for key in both:
        by = left[key].common_timing(right[key])
        x, y = left[key].samples(by), right[key].samples(by)
        floor = "noise_floor_wall" if by == records.WALL else "noise_floor"
        noises = [Ratio(**one) for r in (left[key], right[key]) if (one := getattr(r, floor) or r.noise_floor)]
        ratio, noise = unpaired_ratio(y, x), max(noises, key=lambda noise: noise.half_width, default=None)
        rows.append(ComparedRow(*key, quantile(x, 0.5), quantile(y, 0.5), asdict(ratio), verdict(ratio, noise)))
    return rows, len(left) - len(both), len(right) - len(both)
