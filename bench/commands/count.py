"""``headcount count``: MACs and parameters of a model, of one rank of a parallel plan, or of presets in closed form."""

import argparse
from collections.abc import Sequence
from dataclasses import replace

from headcount.bench import card_times
from headcount.bench.accounts import Assumptions, check, ideal_statement
from headcount.bench.case import Case
from headcount.bench.cli import COUNT, Parser, add_output, serve
from headcount.bench.closed_form.case import case_of
from headcount.bench.closed_form.times import time_table
from headcount.bench.commands.options import (
    ASSUMPTIONS,
    MODEL,
    add_times,
    assumptions_of,
    column_options,
    counter_options,
    counters_of,
    refuse,
)
from headcount.bench.counters import registry
from headcount.bench.counting.count import CLOSED_FORM, check_device, count, parse_counters
from headcount.bench.counting.result import Count, Unknown
from headcount.bench.errors import UsageError, require_package
from headcount.bench.hardware import Hardware, find_card
from headcount.bench.macs import across, columns, entries, module, ranks, survey
from headcount.bench.macs.cite import citation, method
from headcount.bench.output.figure import check_format
from headcount.bench.output.layout import AUTO
from headcount.bench.performance.plan_time import DTYPE, DTYPE_BYTES
from headcount.bench.result import Result, Table
from headcount.bench.targets.config_fields import type_bytes
from headcount.bench.targets.target import (
    OPERATORS,
    add_modes,
    add_operator_options,
    add_ranks,
    add_target_options,
    check_text,
    has_plans,
    is_configuration,
    parse_target,
)
from headcount.formulas.plan import parse as parse_plan
from headcount.formulas.rank import BYTES, REDUCTION
from headcount.models.configs.numbers import TYPE_BITS, parse_element_bytes
from headcount.models.configs.presets import LISTED, PRESETS
from headcount.models.configs.suggest import choices
from headcount.models.configs.targets import has_closed_form, split

PROG = "headcount count"
DESCRIPTION = """MACs and parameters of a model, or of presets in closed form. Below, make
returns (module, inputs) and apply(module) divides the module.

    headcount count config.json --seq-len 1024
    headcount count model.py:Net --input 1,3,224,224
    headcount count llama3-8b mistral-7b --vary T=1Ki,8Ki --columns macs kv_bytes
    headcount count model.py:make --ranks 8 --plan plan.py:apply
"""
DECODED = ("decode_macs", "decode_bytes", "kv_bytes")
"""Columns of --decode."""
MODULE = ("input", "dtype", "training", *OPERATORS, "depth", "plot", "ranks", "rank")
"""Options of a module that runs, which closed forms do not have."""


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """Return the command line."""
    out = Parser(prog=prog, description=DESCRIPTION)
    what = out.add_argument_group("what to count")
    what.add_argument("target", nargs="+", metavar="TARGET", help=MODEL)
    add_target_options(what)
    what.add_argument("--vary", action="append", metavar="T=N,N,…", help="a row for each value, and for each TARGET")
    add_modes(what)
    what.add_argument("--decode", action="store_true", help="add one decode step: its MACs and bytes")
    what.add_argument("--across", metavar="LETTER", help="a column for each value of a letter of --vary")
    what.add_argument("--names", nargs="+", metavar="NAME", help="names of rows and curves, one for each TARGET")
    devices = out.add_argument_group("one rank of many devices")
    devices.add_argument("--plan", metavar="PLAN", help="tp=8,sp; with --ranks FILE.py:FUNCTION or transformers")
    add_ranks(devices)
    devices.add_argument("--reduce-bytes", type=COUNT, metavar="N", help="of a summed gradient (default: 2)")
    how = counter_options(out)
    how.add_argument("--depth", type=COUNT, metavar="N", help="merge modules below depth N (default: 3)")
    add_operator_options(how)
    how.add_argument("--plot", metavar="FILE", help="MACs by module, with --vary a cost: .pdf, .svg, .png")
    column_options(out)
    add_output(out).add_argument("--cite", action="store_true", help="end with a sentence for a paper, and BibTeX")
    return out


def command(args: argparse.Namespace) -> Result:
    """Count what ``args`` names."""
    if args.decode:
        args.columns = list(dict.fromkeys((*args.columns, *DECODED)))
    if args.plan and args.ranks is None and all(has_plans(split(text)[0]) for text in args.target):
        return _ranks(args)
    if args.across:
        across.check_letter(args.across, survey.vary(args.vary or ()))
    if args.vary or len(args.target) > 1 and not args.counter:
        return _survey(args)
    refuse(args, ("names",), "one TARGET; it names rows of --vary and of several TARGETs")
    if args.counter == [CLOSED_FORM]:
        return _closed_forms(args)
    return _module(args)


def _survey(args: argparse.Namespace) -> Result:
    """Return the costs of several targets, or of one at several points."""
    refuse(
        args,
        ("backward", "training", "decode", "depth", "ranks", "plan", "check", "counter"),
        "--vary and several TARGETs",
    )
    for text in args.target:
        check_text(text)
    if args.names and len({*args.names}) != len(args.target):
        raise UsageError(
            f"--names {' '.join(args.names)}: it takes as many different names as there are TARGETs, {len(args.target)}"
        )
    add_times(args, survey.DEFAULT)
    varied = survey.vary(args.vary or ())
    given = _in_types(args)
    check(args.columns, given)
    if args.plot:
        check_format(args.plot)
    human = args.format in ("md", "latex") and args.unit == AUTO
    found = survey.table(args, varied, given, human)
    if args.plot:
        survey.plot(args.plot, found, varied, given)
    rows = list(found.rows)
    # files for machines keep a row for each value
    is_across = args.across and args.format not in ("json", "csv")
    printed: Table = across.across(found, args.across) if is_across else found
    return _result(args, [printed], [], [row.case for row in rows], survey.sentence(rows, args.columns, args.flops))


def _card_of(args: argparse.Namespace) -> Hardware:
    """Return the card of --on. Raises UsageError for another one, and for a type that times are not in."""
    if args.dtype in TYPE_BITS and parse_element_bytes(args.dtype) != DTYPE_BYTES:
        raise UsageError(f"--on: times are in {DTYPE}, not in {args.dtype}")
    return find_card(args.on)


def _in_types(args: argparse.Namespace, has_times: bool = False) -> Assumptions:
    """Return the assumptions of --columns, with the types of the targets where no bytes of an element are given."""
    given = assumptions_of(args, has_times)
    if args.element_bytes is not None:
        return given
    specs = [split(text)[0] for text in args.target]
    size, *others = {type_bytes(spec, args.dtype) for spec in specs}
    has_run_types = not any(map(has_closed_form, specs))
    return replace(given, element_bytes=given.element_bytes if others else size, has_run_types=has_run_types)


def _cases(args: argparse.Namespace) -> list[Case]:
    """Return the presets, layers and configurations of ``args``. Raises ConfigError for one that does not exist."""
    found: list[Case] = []
    for text in args.target:
        target = parse_target(text, args)
        if not has_closed_form(target.spec) and not is_configuration(target.spec):
            valid = choices(text, PRESETS, LISTED)
            raise UsageError(
                f"{text} has no closed form: it is no preset, no config.json, and no layer as moa:K=8,…; {valid}"
            )
        found.append(case_of(target, text))
    return found


def _closed_forms(args: argparse.Namespace) -> Result:
    """Return the ledger of each preset, and the columns of all."""
    has_types = all(is_configuration(split(text)[0]) for text in args.target)
    of_module = [name for name in MODULE if name != "dtype" or not has_types]
    refuse(args, (*of_module, "backward", "device", "reduce_bytes"), "closed forms")
    cases = _cases(args)
    given = _in_types(args, has_times=True)
    check(args.columns, given)
    changed = f" with {', '.join(args.set)}" if args.set else ""
    counts = list(map(count, cases))
    found: list[Table] = []
    for case, closed in zip(cases, counts, strict=True):
        for table in entries.tables(case, closed, f"{case.name}{changed}: ledger"):
            # with --columns, the ledger is detail
            found.append(replace(table, detail=table.detail or bool(args.columns)))
    more: list[Table] = []
    if args.columns:
        heading = f"{', '.join(case.name for case in cases)}{changed}"
        more.append(columns.table_of(cases, heading, args.columns, given))
    if args.on:
        more += [card_times.table(case, _card_of(args), assumptions_of(args, has_times=True)) for case in cases]
    return _result(args, found, more, cases, entries.sentence(counts, args.flops))


def _ranks(args: argparse.Namespace) -> Result:
    """Return the tables of a rank of each preset or configuration under --plan.

    A rank of a preset is counted unless --counter is closed-form.
    """
    without = (*MODULE, "vary", "across", "names", "cite", "decode", "device", *ASSUMPTIONS, "rules")
    refuse(args, without, "--plan of a preset or configuration")
    counters = parse_counters(args.counter or ["headcount"])
    if others := [name for name in counters if name != "headcount"]:
        raise UsageError(f"--plan counts a rank on meta: it takes --counter headcount, not {others[0]}")
    element_bytes = {**BYTES, REDUCTION: args.reduce_bytes or BYTES[REDUCTION]}
    plan = parse_plan(args.plan)
    found: list[Table] = []
    rows: list[ranks.RankRow] = []
    times: list[Table] = []
    for text in args.target:
        target = replace(parse_target(text, args), plan=None)
        case = case_of(target, text, plan)
        counted = replace(target, lengths=case.lengths) if counters else None
        if args.on:
            times.append(card_times.table(case, find_card(args.on), Assumptions()))
        by_rank, *collectives = ranks.tables(
            case, args.columns, element_bytes, target=counted, training=bool(args.backward)
        )
        rows += by_rank.rows
        found += [by_rank, *collectives]
    return Result([*found, *times], lambda: ranks.sentence(rows, args.flops))


def _module(args: argparse.Namespace) -> Result:
    """Return the tables of a module: of the user's code, a configuration or a preset."""
    if len(args.target) > 1:
        raise UsageError(
            f"one TARGET is counted at a time, not {' '.join(args.target)}; --counter closed-form takes several, and "
            "--set, --input and --formula repeat: --set n=7 --set m=8"
        )
    (text,) = args.target
    refuse(args, ("reduce_bytes",), "a module; it needs a preset with --plan")
    counters = counters_of(args, [CLOSED_FORM])
    if args.plan and (counters or args.decode or args.device):
        raise UsageError("--plan counts a rank on meta: it goes without --counter, --decode and --device")
    if counters:
        refuse(args, ("backward", "training"), "--counter: the other tools count the forward pass in eval mode")
    case, target = None, parse_target(text, args)
    given = _in_types(args, has_times=True)
    if has_closed_form(target.spec):
        case = Case.of(target.spec, target.settings, target.lengths, called=text)
        if not case.config.has_module:
            return _closed_forms(args)
        case.check_runs()
    check(args.columns, given)
    if args.plot:
        check_format(args.plot)
    require_package("torch")
    check_device(args.device)
    tools = [name for name in counters if name in registry.tools()]
    has_costs = args.format == "json" or bool(args.columns)
    found = count(target, tools, columns=[] if case else args.columns, given=given, has_costs=has_costs)
    # its bytes need no count, so that a reason is of the step
    if args.decode and found.columns and isinstance(unknown := found.columns.get("kv_bytes"), Unknown):
        raise UsageError(unknown.reason)
    if case and case.ideal not in (None, case):
        # the released code runs, which a paper may not mean
        found = found.with_values(notes=(*(found.notes or ()), f"{ideal_statement([case])} --set form=ideal counts it"))
    printed = module.tables(found, args.depth or 3, bool(args.elementwise), args.check)
    if args.plot:
        module.plot(args.plot, found, args.depth)
    more: list[Table] = []
    if args.columns and case:
        more.append(columns.table_of([case], text, args.columns, given, run=found))
    elif args.columns:
        more.append(columns.of_module(found, text, args.columns, given))
    if args.on:
        more.append(time_table(target, _card_of(args), assumptions_of(args, has_times=True)))
    return _result(args, printed, more, [found], module.sentence(found, args.flops))


def _result(
    args: argparse.Namespace,
    tables: Sequence[Table],
    more: Sequence[Table],
    counted: Sequence[Case | Count],
    sentence: str,
) -> Result:
    """Return the tables of what was ``counted`` and those of --columns and --on, and the last line.

    With --brief that line has the cells of --columns and --on. With --cite it ends with a sentence and BibTeX, which
    are below the last table too in the formats that a paper or a page takes.
    """
    if args.brief and more:
        rule = f" Rule {args.rules[0]}." if args.rules else ""
        sentence += "".join(f" {columns.sentence(table)}" for table in more) + rule
    *others, last = [*tables, *more]
    if args.cite:
        sentence += f"\n{citation(counted)}"
        if args.format in ("md", "latex"):
            last = replace(last, below=[*last.below, method(counted)])
    return Result([*others, last], lambda: sentence)


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run the command and return its exit code."""
    return serve(prog, parser(prog), command, argv)
