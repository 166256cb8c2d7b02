"""python -m bench.macs: the papers' tables, Tables 1-3 of arXiv 2210.05144 by default."""

from collections.abc import Sequence

from headcount.bench.cli import exit_process, serve
from headcount.bench.commands import table

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
    "": "headcount count",
}
"""The command of each option that is none of tables, and of other arguments."""


def parser(prog: str = PROG):
    """Return the command line."""
    out = table.parser(prog, "--table", DESCRIPTION.replace(PROG, prog))
    out.elsewhere = COMMANDS
    return out


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run the command and return its exit code."""
    return serve(prog, parser(prog), table.command, argv)


if __name__ == "__main__":
    exit_process(main())
