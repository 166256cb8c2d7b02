"""``headcount table``: the papers' MAC and parameter columns, or those of a file, each printed number judged."""

import argparse
import itertools
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial

from headcount.bench.accounts import ACCOUNTS, Assumptions, check
from headcount.bench.cli import Parser, add_output, serve
from headcount.bench.commands.options import (
    ASSUMPTIONS,
    assumptions_of,
    column_options,
    counter_options,
    counters_of,
    refuse,
)
from headcount.bench.counters import registry
from headcount.bench.counting.count import CLOSED_FORM, DEVICES
from headcount.bench.errors import UsageError
from headcount.bench.macs import columns, published
from headcount.bench.macs.published import ModelRow
from headcount.bench.output.progress import with_progress
from headcount.bench.render import FORMATS, fits
from headcount.bench.result import Result, Table
from headcount.bench.variants.variant import variants_with
from headcount.formulas.conventions import TRAINING
from headcount.formulas.published import own, tables
from headcount.formulas.published.figures import QUANTITIES
from headcount.formulas.published.tables import RULES
from headcount.models.configs.base import ConfigError
from headcount.models.configs.presets import PRESETS
from headcount.models.configs.suggest import choices
from headcount.models.configs.targets import has_closed_form, is_configuration, split

PROG = "headcount table"
DESCRIPTION = """The papers' MAC and parameter columns or those of your file, each printed number judged.

    headcount table moa-table3
    headcount table moh-llm --columns kv_bytes
    headcount table mypaper.toml --format latex
    headcount table mypaper.csv --find-rule

Your FILE.csv, or a table of markdown in FILE.md, has a row for each number:

    target,quantity,printed
    "llama3-8b,T=1024",macs,7.96T
    model.py:make,params,3.2M

or one for each model, with the header model,params,MACs (G). FILE.toml has more fields.
"""
OF_FILES = ("rule", "find_rule", "trust")
OF_PAPERS = ("params", "counter", "device", "columns")
OF_INTEGERS = ("unit", "flops")
LISTING = "headcount table --list"


def parser(prog: str = PROG, description: str = DESCRIPTION) -> Parser:
    """Return the command line."""
    out = Parser(prog=prog, description=description)
    text = (
        "a name of --list, or your FILE.csv, .md or .toml, - for standard input (default: tables of arXiv 2210.05144)"
    )
    out.add_argument("table", nargs="*", metavar="NAME", default=[], help=text)
    add = out.add_argument_group("tables").add_argument
    add("--list", action="store_true", help="list tables, presets, counters, columns and rules")
    add("--params", action="store_true", help="also the vocabularies that fit the printed parameters")
    others = ", ".join(rule for rule in RULES if rule not in (*TRAINING, *QUANTITIES))
    text = f"in place of your file's: {others}, or one of --rules"
    add("--rule", dest="rule", metavar="RULE", choices=RULES, help=text)
    add("--find-rule", action="store_true", help="all rules by the number of rows of your file that they print")
    add("--trust", action="store_true", help="run code from outside of the folder of your file too")
    counter_options(out)
    column_options(out)
    add_output(out)
    return out


def command(args: argparse.Namespace) -> Result | str:
    """Judge the tables of ``args``, or list what there is."""
    if args.list:
        return listing()
    names = [name for text in args.table for name in read_names(text)]
    if any(map(is_file, names)):
        refuse(args, (*OF_PAPERS, *ASSUMPTIONS, "rules", "on", *OF_INTEGERS), "a file of a table")
        if args.find_rule:
            refuse(args, ("rule",), "--find-rule, which tries all")
        if others := [name for name in names if not is_file(name)]:
            raise UsageError(f"{others[0]} is no file: tables of files and of papers do not go together")
        # tables of papers do without it
        from headcount.bench.macs.own import judge_files

        judged, sentence = judge_files(args)
        return Result(judged, lambda: sentence, strict=args.check)
    refuse(args, OF_FILES, "tables of papers; it needs a file of a table")
    return _papers(args, names or tables.names(paper="moa"), assumptions_of(args))


def _papers(args: argparse.Namespace, names: Sequence[str], given: Assumptions) -> Result:
    """Return the tables of papers called ``names``. Raises UsageError before the first is counted."""
    of_figures = [name for name in names if name in tables.figure_names()]
    if of_figures and (args.columns or args.counter not in ([], [CLOSED_FORM])):
        option = "--columns" if args.columns else "--counter"
        raise UsageError(f"{option} goes with tables of MACs, not with {of_figures[0]}: closed forms only")
    counters = counters_of(args) if of_figures != names else []
    reproduced = [published.ReproducedTable(tables.load(name)) for name in names if name not in of_figures]
    figures = [published.figures_table(name) for name in of_figures]
    planned: list[Table] = []
    for table in reproduced:
        empty = table.table(counters, [])
        check(args.columns, given, [column.key for column in empty.columns])
        planned += [empty, *(table.vocabularies() if args.params else ())]
    fits([*planned, *figures], args.format, args.out)
    models: list[ModelRow] = []
    cells = [row for table in figures for row in table.rows]
    return Result(
        itertools.chain(_counted(args, reproduced, counters, given, models), figures),
        lambda: " ".join([published.sentence(models, cells), *(one for table in figures for one in _shares(table))]),
        strict=args.check,
    )


def _shares(table: Table) -> Sequence[str]:
    """Return how many figures the rules of a library's table give; nothing of other tables."""
    return table.facts.get("shares", ())


def _counted(
    args: argparse.Namespace, reproduced: Sequence[published.ReproducedTable], counters: Sequence[str],
    given: Assumptions, models: list[ModelRow],
) -> Iterator[Table]:  # fmt: skip
    """Yield the tables of MACs, and append their rows to ``models``."""
    cases = [case for table in reproduced for case in table.cases.values()]
    with published.counting(cases, counters, args.device) as count:
        for table in reproduced:
            rows = (table.row(row, count(case)) for row, case in table.cases.items())
            names = [*table.cases]
            made = table.table(counters, list(with_progress(rows, f"{table.printed.name}, row", names)))
            models += made.rows
            yield columns.of_table(made, args.columns, given) if args.columns else made
            yield from table.vocabularies() if args.params else ()


def read_names(text: str) -> list[str]:
    """Return the name of a table's file, or the names of tables. Raises UsageError for what is neither."""
    known, names = (*tables.names(), *tables.figure_names()), text.split(",")
    if is_file(text) or {*names} <= {*known}:
        return [text] if is_file(text) else names
    with suppress(ConfigError):
        spec, _ = split(text)
        if has_closed_form(spec) or is_configuration(spec) or ":" in spec:
            raise UsageError(f"{text!r} is a model and no table; headcount count {text} counts it")
    files = "a file is FILE.csv, .md or .toml, or - for standard input, with the header"
    header = f"{','.join(own.HEADER)} or {','.join(own.WIDE)}"
    raise UsageError(f"{text!r} is no table; {choices(text, known, LISTING)}; {files} {header}")


def is_file(text: str) -> bool:
    """Return whether ``text`` names a file of a table, or standard input."""
    return text == "-" or text.lower().endswith((".toml", ".csv", ".md"))


def listing() -> str:
    """Return the names of everything that the commands know."""
    grids = [f"{', '.join(one.grid.letters)} ({one.label})" for one in variants_with("grid").values() if one.grid]
    *others, last = grids
    lines = {
        "tables": ", ".join(tables.names()),
        "figures": ", ".join(tables.figure_names()),
        "presets": ", ".join(PRESETS),
        "counters": ", ".join((CLOSED_FORM, *registry.COUNTERS, "all")),
        "devices": ", ".join(DEVICES),
        "formats": ", ".join(FORMATS),
        "columns": ", ".join(ACCOUNTS),
        "rules": ", ".join(TRAINING),
        "grids": f"{', '.join(others)} or {last}, with d_m, T, S, B",
        "fields": "of a preset: any wrong --set FIELD=VALUE names them",
    }
    wrap = partial(textwrap.fill, width=80, subsequent_indent=10 * " ", break_on_hyphens=False, break_long_words=False)
    return "\n".join(wrap(f"{name:10}{text}") for name, text in lines.items())


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run the command and return its exit code."""
    return serve(prog, parser(prog), command, argv)
