"""``headcount audit``: what every counter reports, of a target or of equivalent formulations of each layer."""

import argparse
from collections.abc import Sequence

from headcount.bench.cli import COUNT, Parser, add_output, serve
from headcount.bench.commands.options import MODEL, counter_options, counters_of, refuse
from headcount.bench.counters import registry
from headcount.bench.counting.count import count
from headcount.bench.macs import module
from headcount.bench.result import Result
from headcount.bench.targets.target import (
    OPERATORS,
    TARGET,
    add_operator_options,
    add_target_options,
    parse_target,
)

PROG = "headcount audit"
DESCRIPTION = """What all installed counters report, and the calls that make each difference.

    headcount audit model.py:make
    headcount audit --device meta     equivalent formulations of each layer
"""


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """Return the command line."""
    out = Parser(prog=prog, description=DESCRIPTION)
    what = out.add_argument_group("what to count")
    text = f"{MODEL} (default: formulations of each layer)"
    what.add_argument("target", nargs="?", metavar="TARGET", help=text)
    add_target_options(what)
    how = counter_options(out)
    how.add_argument("--depth", type=COUNT, metavar="N", help="merge modules below depth N (default: 3)")
    add_operator_options(how)
    add_output(out)
    return out


def command(args: argparse.Namespace) -> Result:
    """Compare the counters on the target of ``args``, or on all formulations."""
    counters = [name for name in counters_of(args) if name in registry.tools()]
    if args.target:
        found = count(parse_target(args.target, args), counters)
        tables = module.tables(found, args.depth or 3, bool(args.elementwise), args.check)
        return Result(tables, lambda: module.sentence(found, args.flops))
    refuse(args, (*TARGET, *OPERATORS, "depth"), "the formulations; it needs a TARGET")
    # it imports torch
    from headcount.bench.macs import audit

    rows = audit.count_formulations(counters, args.device)
    return Result(audit.tables(rows, counters), lambda: audit.sentence(rows, counters))


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run the command and return its exit code."""
    return serve(prog, parser(prog), command, argv)
