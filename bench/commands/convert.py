"""``headcount convert``: the cost of a dense preset as mixture-of-head attention."""

import argparse
from collections.abc import Sequence

from headcount.bench.case import Case
from headcount.bench.cli import SET, Parser, add_output, serve
from headcount.bench.commands.options import length_options, lengths_of
from headcount.bench.errors import UsageError
from headcount.bench.macs import convert
from headcount.bench.result import Result
from headcount.models.configs.presets import parse_overrides

PROG = "headcount convert"
DESCRIPTION = """A dense preset as mixture-of-head attention.

    headcount convert llama3-8b s=16 r=8
    headcount convert llm-s s=3 r=6 router=linear
"""


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """Return the command line."""
    out = Parser(prog=prog, usage=f"{prog} PRESET … s=N r=N [OPTION …]", description=DESCRIPTION)
    out.names_words = True
    out.add_argument("words", nargs="+", metavar="WORD", help="presets, then s=N r=N, router=linear for matrices")
    sizes = out.add_argument_group("sizes")
    sizes.add_argument("--set", **SET, help="a field of the presets")
    length_options(sizes)
    add_output(out)
    return out


def command(args: argparse.Namespace) -> Result:
    """Convert the presets of ``args``."""
    presets = [word for word in args.words if "=" not in word]
    sizes = [word for word in args.words if "=" in word]
    if not (presets and sizes):
        raise UsageError("a conversion is of a preset to sizes; write headcount convert PRESET s=16 r=8")
    how, lengths = convert.parse(sizes), lengths_of(args)
    cases = [Case.of(preset, parse_overrides(preset, args.set), lengths) for preset in presets]
    found = [convert.convert(case, how) for case in cases]
    tables = [table for one in found for table in convert.tables(one)]
    return Result(tables, lambda: convert.sentence(found, args.flops))


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run the command and return its exit code."""
    return serve(prog, parser(prog), command, argv)
