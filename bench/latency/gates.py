"""Check every implementation of some layers against the float64 reference. Nothing is timed.

Each runs forward and with all gradients, on short, odd and longer sequences, on a single token, and with every token
routed to one expert. On a GPU, memory that was never written holds NaN, a captured graph is replayed on other inputs,
and a second run must give the same bits.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from headcount.bench import records
from headcount.bench.cli import Parser, Work, add_output
from headcount.bench.latency import schedule
from headcount.bench.latency.timing_cases import TimingCase
from headcount.bench.measure import check_device
from headcount.bench.table import TONES, Column, Row, Section, Table

PROG = "python -m bench.latency gates"
LAYERS = (*schedule.HEADLINE, "moh-32x64-50", "moh-llama3-50", "mha-base")
SHAPES = ((129, 2, "balanced"), (512, 2, "balanced"), (1, 1, "balanced"), (10, 4, "one-expert"))
"""Tokens of a sequence, sequences, routing."""
DTYPES = {"cpu": ("float32",), "cuda": ("bfloat16", "float32")}

TABLE = Table(
    "gates",
    "Implementations against the float64 reference; nothing is timed",
    (
        Column("layer", "layer", width=17),
        Column("implementation", "implementation", width=14, priority=0),
        Column("dtype", "dtype", width=8, priority=0),
        Column("pass", "pass", width=8, priority=0),
        Column("seq_len", "T", kind="int", width=5, priority=0),
        Column("routing", "routing", width=10, priority=2),
        Column("error", "rel.\nerror", width=7, align="right", priority=1),
        Column("bound", "allowed", width=7, align="right", priority=2),
        Column("choices", "other\nchoices", kind="int", width=7, priority=4),
        Column("replay", "replay\nerror", width=7, align="right", priority=3),
        Column("same", "same\nbits", width=4, priority=3),
        Column("core", "core by", width=15, priority=4),
        Column("status", "status", width=6, priority=0, tones=TONES),
    ),
)


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """Return the command line of bench.latency gates."""
    out = Parser(prog=prog, description=__doc__)
    out.add_argument("--layer", nargs="+", metavar="NAME", default=list(LAYERS), help=f"(default: {', '.join(LAYERS)})")
    out.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="(default: cpu)")
    defaults = "; ".join(f"{' '.join(dtypes)} on {device}" for device, dtypes in DTYPES.items())
    out.add_argument(
        "--dtype", nargs="+", choices=("float32", "bfloat16", "float16", "float64"), help=f"(default: {defaults})"
    )
    out.add_argument("--json", metavar="PATH", help="append records there; cases that it holds are not checked again")
    add_output(out)
    return out


def plan(args: argparse.Namespace) -> Work:
    """Return a row for each implementation of each case."""
    check_device(args.device, ["cpu"])
    cases = check_cases(args.layer, args.device, args.dtype)
    for case in cases:
        # unknown names are reported before the first check
        case.impls()
    path = Path(args.json) if args.json else None
    if path:
        # a file that cannot be written is reported before the first check
        records.append(path)
    return Work([section(cases, path)], result=result)


def result(printed: Sequence[Section]) -> str:
    """Return how many implementations agree with the reference."""
    found = [row.values["status"] for section in printed for row in section.rows]
    return f"{found.count(records.AGREES)} of {len(found)} implementations agree with the reference."


def check_cases(names: Sequence[str], device: str, dtypes: Sequence[str] | None = None) -> list[TimingCase]:
    """Return the cases to check, shapes outside, layers inside."""
    return [
        TimingCase("layer", name, seq_len, batch_size, dtype, which, device, routing)
        for dtype in dtypes or DTYPES[device]
        for seq_len, batch_size, routing in SHAPES
        for which in ("forward", "both")
        for name in names
    ]


def section(
    cases: Sequence[TimingCase],
    path: Path | None,
    has_time: Callable[[], bool] = lambda: True,
    on_lost: Callable[[str], None] = lambda reason: None,
) -> Section:
    """Return the table of ``cases``, checked while ``has_time``; those that ``path`` holds are not checked again.

    Where an implementation leaves the device unusable, its status is the record of the case, and ``on_lost`` is called.
    """
    below: list[str] = []
    return Section(TABLE, _rows(cases, path, has_time, on_lost, below), below)


def _rows(cases, path, has_time, on_lost, below) -> Iterator[Row]:
    from headcount.bench.latency import measure

    done = schedule.read_finished(path, records.CHECK)
    for number, case in enumerate(cases):
        if case.key not in done:
            if not has_time():
                below.append(f"No time was left for {len(cases) - number} of {len(cases)} cases.")
                return
            lost = None
            try:
                found = list(measure.check_case(case))
            except measure.DeviceLost as error:
                lost = error
                name, _, impl = error.label.rpartition(" ")
                found = [{"layer": name, "implementation": impl, "status": error.status}]
            found = [_record(case, one) for one in found]
            done[case.key] = found
            if path:
                records.append(path, *found)
            if lost:
                on_lost(f"{case.key}: {lost}")
        for record in done[case.key]:
            label = f"{record['layer']} {record['implementation']}"
            failures = [] if record["status"] == records.AGREES else [f"{case.key} {label}: {record['status']}"]
            yield Row({column.key: record[column.key] for column in TABLE.columns}, [], [record], failures)


def _record(case: TimingCase, found: dict[str, Any]) -> dict[str, Any]:
    shape = {"dtype": case.dtype, "pass": case.which, "seq_len": case.seq_len, "routing": case.routing}
    return (
        {"kind": records.CHECK, "cell": case.key, **dict.fromkeys(column.key for column in TABLE.columns)}
        | shape
        | found
    )
