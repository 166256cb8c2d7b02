"""``headcount compare``: two models, two parallel plans of one, or rules of training FLOPs."""

import argparse
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from headcount.bench.accounts import Assumptions
from headcount.bench.case import Case, describe_input
from headcount.bench.cli import Parser, add_output, serve
from headcount.bench.closed_form.case import case_of
from headcount.bench.column import plural
from headcount.bench.commands.options import (
    assumptions_of,
    column_options,
    counter_options,
    refuse,
)
from headcount.bench.counting.count import check_device, count, parse_counters
from headcount.bench.counting.result import Count
from headcount.bench.errors import UsageError
from headcount.bench.macs import cases, columns, entries
from headcount.bench.render import realised
from headcount.bench.result import Result, Table, format_macs
from headcount.bench.snapshot import difference
from headcount.bench.snapshot import tables as snapshot
from headcount.bench.targets.process import shared_imports
from headcount.bench.targets.target import TARGET, add_target_options, has_plans, parse_target
from headcount.bench.training_flops import RuleRefused
from headcount.formulas.plan import GRAMMAR, Plan
from headcount.formulas.plan import parse as parse_plan
from headcount.formulas.rank import BYTES, INDEX, PARAMETER, REDUCTION
from headcount.models.configs.targets import has_closed_form, split

PROG = "headcount compare"
DESCRIPTION = """The difference of two models by module and kind, and the sizes where it changes its sign.

    headcount compare moa-16K32E256D transformer-big
    headcount compare model.py:make model.py:make,width=11
    headcount compare old/config.json new/config.json --seq-len 1024
    headcount compare llama3-8b --plan tp=8 --plan tp=8,sp
    headcount compare llama3-8b --rules palm 6n
"""
ONE_OR_TWO = "a comparison is of two models, A B, or of one: A --rules palm 6n, or A --plan P --plan Q"


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """Return the command line."""
    out = Parser(prog=prog, description=DESCRIPTION)
    text = "as headcount count takes it, or a lock or JSON of a count"
    what = out.add_argument_group("what to compare")
    what.add_argument("models", nargs="+", metavar="TARGET", help=text)
    add_target_options(what)
    what.add_argument("--plan", action="append", metavar="PLAN", help=f"a rank under one or two of {GRAMMAR}")
    counter_options(out)
    column_options(out)
    add_output(out)
    return out


@shared_imports()
def command(args: argparse.Namespace) -> Result:
    """Compare what ``args`` names."""
    if args.rules and not args.plan and (len(args.models) == 1 or len(args.rules) > 1):
        return _rules(args)
    return _plans(args) if args.plan else _models(args)


def _models(args: argparse.Namespace) -> Result:
    """Return the differences of two models, with a counter that checks each crossover."""
    if len(args.models) != 2:
        raise UsageError(ONE_OR_TWO)
    given = assumptions_of(args)
    a, b = _sides(args, given)
    if any(map(cases.is_saved, args.models)):
        if args.counter or args.columns:
            raise UsageError("--counter and --columns go with models that are counted now, and no file of a count")
        counts = [cases.count_of(side) for side in (a, b)]
        names = [text if cases.is_saved(text) else side.name for text, side in zip(args.models, (a, b), strict=True)]
        return _counts(args, counts, names)
    # it imports sympy
    from headcount.bench.macs import compare

    counters = parse_counters(args.counter or ["torch"])
    if counters:
        check_device(args.device)
        for case in (a, b):
            case.check_runs()
    tables = compare.tables(a, b, counters, args.device)
    if args.columns:
        compared = [side.count if isinstance(side, cases.CountedCase) else side for side in (a, b)]
        tables = columns.of_comparison(tables, compared, args.columns, given)
    # the rows of crossovers, where they are printed
    tables = [realised(table) for table in tables]
    crossed = [row for table in tables for row in table.rows if isinstance(row, compare.CrossoverRow)]
    return _result(args, tables, a.ledger.macs - b.ledger.macs, crossed)


def _counts(
    args: argparse.Namespace, counts: Sequence[Count], names: Sequence[str], notes: Sequence[str] = ()
) -> Result:
    """Return the differences of two counts by module and kind."""
    a, b = counts
    others = {unit: difference.total(a, name) - difference.total(b, name) for name, unit in difference.UNITS.items()}
    del others[difference.UNITS[difference.MACS]]
    tables = snapshot.tables(a, b, snapshot.COMPARED, names=names, notes=notes)
    return _result(args, tables, a.macs - b.macs, others=others)


def _result(
    args: argparse.Namespace, tables: Sequence[Table], macs: int, crossed: Sequence[Any] = (),
    others: Mapping[str, int] | None = None,
) -> Result:  # fmt: skip
    sentence = _sentence(macs, crossed, args.flops, others or {})
    return Result(tables, lambda: sentence, strict=args.check)


def _sentence(macs: int, crossed: Sequence[Any], in_flops: bool, others: Mapping[str, int]) -> str:
    """Return the difference A - B, those of ``others`` by unit, and each crossover by its rule, letter and size.

    ``crossed`` are rows of macs.compare.
    """
    if macs:
        out = f"A: {format_macs(abs(macs), in_flops)} {_more(macs)} than B"
    else:
        out = f"A: as many {'FLOPs' if in_flops else 'MACs'} as B"
    out += "".join(f"; {abs(size):,} {unit} {_more(size)}" for unit, size in others.items() if size)
    if crossed:
        found: dict[str, list[str]] = {}
        for row in crossed:
            if row.counted != "no crossover":
                found.setdefault(row.account, []).append(f"{row.letter} from {row.above:,}")
        number = sum(map(len, found.values()))
        texts = [f"{account}: {', '.join(crossings)}" for account, crossings in found.items()]
        out += f"; {plural(number, 'crossover')} ({'; '.join(texts)})" if found else "; no crossover"
    return f"{out}."


def _more(difference: int) -> str:
    return "more" if difference > 0 else "less"


def _sides(args: argparse.Namespace, assumed: Assumptions | None = None) -> list[cases.Side]:
    """Return the models, with the options that change them."""
    given = {name: value for name in TARGET if (value := getattr(args, name)) not in (None, [])}
    return cases.parse_sides(args.models, given, args.columns, assumed)


def _plans(args: argparse.Namespace) -> Result:
    """Return the differences of a rank's closed form, of two plans or of two models under one."""
    refuse(args, ("counter", "device", "columns", "input", "dtype"), "--plan")
    pairs = [(text, plan) for text in args.models for plan in args.plan]
    if len(pairs) != 2:
        raise UsageError("--plan takes two plans for one model, or one plan for two")
    for text in args.models:
        if not has_plans(split(text)[0]):
            raise UsageError(f"--plan compares presets and configurations, and {text} is none")
    options = argparse.Namespace(**{**vars(args), "plan": None})
    compared = [case_of(parse_target(text, options), text, parse_plan(plan)) for text, plan in pairs]
    found = [_whole_step(case, count(case)) for case in compared]
    return _counts(args, found, [one.name for one in found], _plan_notes(compared))


def _whole_step(case: Case, rank: Count) -> Count:
    """Return the count of a rank with the collectives of a whole step, of all microbatches."""
    number = (case.plan or Plan()).mb
    sent = (one if one.phase == "sync" else replace(one, times=number * one.times) for one in rank.collectives)
    return rank.with_values(collectives=tuple(sent))


def _plan_notes(compared: Sequence[Case]) -> list[str]:
    """Return of what the MACs and the bytes of two plans are."""
    inputs = [describe_input(case.lengths) for case in compared]
    numbers = [_microbatches((case.plan or Plan()).mb) for case in compared]
    return [
        "Of a rank, of the stage whose step is the longest. MACs: of the forward pass of one microbatch, "
        f"{_in_sides(inputs)}.",
        f"Bytes sent: of a whole step, forward and backward of {_in_sides(numbers)} and one sum of gradients; "
        f"{BYTES[PARAMETER]} an element, {BYTES[REDUCTION]} in sums of gradients, {BYTES[INDEX]} of an index.",
    ]


def _microbatches(number: int) -> str:
    return "one microbatch" if number == 1 else f"{number:,} microbatches"


def _in_sides(texts: Sequence[str]) -> str:
    """Return the text of both sides, or that of each."""
    a, b = texts
    return a if a == b else f"{a} in A and {b} in B"


def _rules(args: argparse.Namespace) -> Result:
    """Return the training FLOPs of one model by several rules; of a preset by two of them the differences by entry."""
    if len(args.models) != 1:
        rules = " ".join(args.rules)
        raise UsageError(f"{len(args.models)} models: --rules {rules} compares rules of one, A --rules {rules}")
    (text,) = args.models
    # a measured step has an MFU by each rule
    columns = args.columns or (["mfu"] if args.seconds or args.peak else [])
    given = assumptions_of(argparse.Namespace(**{**vars(args), "rules": None, "columns": columns}))
    refuse(args, ("counter", "device"), "--rules")
    target = parse_target(text, args)
    if not has_closed_form(target.spec):
        return entries.rule_totals(count(target), target.name, args.rules, columns, given)
    refuse(args, ("input", "dtype"), "--rules of a preset")
    case = Case.of(target.spec, target.settings, target.lengths, called=text)
    if len(args.rules) == 2 and not columns:
        # where one of them is refused, the totals show the other
        with suppress(RuleRefused):
            return entries.compare_rules(case, args.rules)
    return entries.rule_totals(case, case.name, args.rules, columns, given)


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run the command and return its exit code."""
    return serve(prog, parser(prog), command, argv)
