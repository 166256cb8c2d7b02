"""``headcount grid``: printed equation, exact MACs and counts of one attention layer at every combination of sizes."""

import argparse
from collections.abc import Sequence

from headcount.bench.accounts import check
from headcount.bench.cli import Parser, add_output, serve
from headcount.bench.commands.options import add_times, assumptions_of, column_options, counter_options, counters_of
from headcount.bench.macs import columns, grid
from headcount.bench.result import Result

PROG = "headcount grid"
DESCRIPTION = """One attention layer at every combination of sizes.

    headcount grid 'K=1,2,4 E=8 D=64 T=10,128'
    headcount grid mha:h=8,d_h=64,T=128,8192 --counter closed-form --columns kv_bytes
    headcount grid 'K=1,2,4 E=8 D=64 T=128' --on 'H100 SXM'
"""


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """Return the command line."""
    out = Parser(prog=prog, description=DESCRIPTION)
    text = "moa:K=1,2,E=8,D=64,T=10; 'K=1,2 E=8 D=64 T=10'; a TOML file"
    out.add_argument("grid", nargs="+", metavar="SPEC", help=text)
    counter_options(out)
    column_options(out)
    add_output(out)
    return out


def command(args: argparse.Namespace) -> Result:
    """Count the grids of ``args``."""
    add_times(args)
    given = assumptions_of(args)
    check(args.columns, given)
    counters = counters_of(args)
    grids = [grid.count_grid(grid.parse(text), counters, args.device) for text in args.grid]
    tables = []
    for number, counted in enumerate(grids, 1):
        table = grid.table(counted, "grid" if number == 1 else f"grid-{number}")
        tables.append(columns.with_accounts(table, args.columns, given) if args.columns else table)
    return Result(tables, lambda: grid.sentence(grids), strict=args.check)


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run the command and return its exit code."""
    return serve(prog, parser(prog), command, argv)
