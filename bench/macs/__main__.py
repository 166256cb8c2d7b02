"""python -m bench.macs: the papers' tables, Tables 1-3 of arXiv 2210.05144 by default."""

import argparse
from collections.abc import Sequence

from headcount.bench.cli import Parser, exit_process, serve
from headcount.bench.commands import table
from headcount.bench.result import Result

PROG = "python -m bench.macs"
DESCRIPTION = """The papers' MAC and parameter columns, each printed number judged: headcount table.

    python -m bench.macs                                  Tables 1-3 of arXiv 2210.05144
    python -m bench.macs --table moh-llm moh-llama3       of arXiv 2410.11842
    python -m bench.macs --counter closed-form            the formulas alone, without torch
"""
COMMANDS = {
    "--preset": "headcount count PRESET",
    "--module": "headcount count TARGET",
    "--plan": "headcount count PRESET --plan PLAN",
    "--grid": "headcount grid SPEC",
    "--compare": "headcount compare A B",
    "--convert": "headcount convert PRESET s=N r=N",
    "--audit": "headcount audit",
}
"""The command of each option that is none of tables."""


def parser(prog: str = PROG) -> Parser:
    """Return the command line: that of headcount table, whose names may stand behind --table."""
    out = table.parser(prog, DESCRIPTION.replace(PROG, prog))
    out.add_argument("--table", dest="tables", nargs="+", default=[], metavar="NAME", help="as NAME")
    out.elsewhere = COMMANDS
    return out


def command(args: argparse.Namespace) -> Result | str:
    """Judge the tables of ``args``."""
    args.table = [*args.table, *args.tables]
    return table.command(args)


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run the command and return its exit code."""
    return serve(prog, parser(prog), command, argv)


if __name__ == "__main__":
    exit_process(main())
