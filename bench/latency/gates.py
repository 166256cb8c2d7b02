"""Check every implementation of some layers against the float64 reference. Nothing is timed.

Each runs forward and with all gradients, on short, odd and longer sequences, on a single token, and with every token
routed to one expert. On a GPU, memory that was never written holds NaN, a captured graph is replayed on other inputs,
and a second run must give the same bits.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from headcount.bench import records
from headcount.bench.cli import Parser, Work, add_output
from headcount.bench.latency import schedule, timing_cases
from headcount.bench.latency.timing_cases import TimingCase
from headcount.bench.table import TONES, Column, Section, Table

PROG = "python -m bench.latency gates"
FIRST_LAYERS = (*schedule.HEADLINE, "moh-32x64-50")
LAYERS = (*FIRST_LAYERS, "moh-llama3-50", "mha-base")
SHAPES = ((129, 2, "balanced"), (512, 2, "balanced"), (1, 1, "balanced"), (10, 4, "one-expert"))
"""Tokens of a sequence, sequences, routing."""
FIRST_SHAPES = SHAPES[:2]
DTYPES = {"cpu": ("float32",), "cuda": ("bfloat16", "float32")}

TABLE = Table(
    "gates",
    "Implementations against the float64 reference; nothing is timed",
    (
        *(column for column in timing_cases.COLUMNS if column.key != "batch_size"),
        Column("dtype", "dtype", width=8, priority=0),
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
    schedule.add_options(out, "--device", "--json")
    defaults = "; ".join(f"{' '.join(dtypes)} on {device}" for device, dtypes in DTYPES.items())
    schedule.add_options(out, "--dtype", nargs="+", help=f"(default: {defaults})")
    add_output(out)
    return out


def plan(args: argparse.Namespace, argv: Sequence[str] = ()) -> Work | Callable[[], int]:
    """Return a row for each implementation of each case."""
    if watch := schedule.prepare(args, argv, stores=args.json):
        return watch
    cases = check_cases(args.layer, args.device, args.dtype)
    for case in cases:
        # unknown names are reported before the first check
        case.impls()
    from headcount.bench.latency.session import CheckSession

    return Work([CheckSession(args.json and Path(args.json)).section(cases)], result=result)


def result(printed: Sequence[Section]) -> str:
    """Return how many implementations agree with the reference."""
    found = [row.values["status"] for section in printed for row in section.rows]
    return f"{found.count(records.AGREES)} of {len(found)} implementations agree with the reference."


def check_cases(
    names: Sequence[str],
    device: str,
    dtypes: Sequence[str] | None = None,
    shapes: Sequence[tuple[int, int, str]] | None = None,
) -> list[TimingCase]:
    """Return the cases to check, shapes outside, layers inside."""
    return [
        TimingCase("layer", name, seq_len, batch_size, dtype, which, device, routing)
        for dtype in dtypes or DTYPES[device]
        for seq_len, batch_size, routing in shapes or SHAPES
        for which in ("forward", "both")
        for name in names
    ]
