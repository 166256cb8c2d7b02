"""python -m bench.macs: the papers' MAC and parameter columns again, any preset in detail, or a grid.

    python -m bench.macs                                         Tables 1-3 of arXiv 2210.05144, with verdicts
    python -m bench.macs --table moh-llm moh-llama3 moh-dit      the models of arXiv 2410.11842
    python -m bench.macs --preset moa-8K8E128D --seq-len 512     one model's ledger and counters
    python -m bench.macs --grid 'K=1,2,4 E=8 D=64 T=10,128'      one layer at every combination
    python -m bench.macs --compare moa-16K32E256D transformer-big  where their difference comes from
    python -m bench.macs --preset llama3-8b --convert s=16 r=8   a dense model as mixture-of-head attention
    python -m bench.macs --counter closed-form                   the formulas alone, without torch
    python -m bench.macs --audit                                 every spelling of a layer under every counter
    python -m bench.macs --module FILE.py:FUNCTION --set n=7     a module of yours; FUNCTION returns (module, inputs)
    python -m bench.macs --preset llama3-8b --rules palm 6n      training FLOPs by two rules, entry by entry
    python -m bench.macs --preset moa-8K8E128D --columns kv_bytes decode_macs --context 512

Tables go to stdout row by row, notes to stderr. Exit codes: 0 fine; 1 a count or a verdict disagrees (--check), a
cell of --audit is unexplained, or a counter fails; 2 wrong usage; 3 the device is not there.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from functools import partial
from itertools import chain
from typing import Any

from headcount.bench import accounts
from headcount.bench.case import LENGTHS, Case
from headcount.bench.cli import Work, serve
from headcount.bench.counters import registry
from headcount.bench.env import peak_memory
from headcount.bench.errors import UsageError, require_package
from headcount.bench.hardware import parse_peak
from headcount.bench.isolated.module_count import ModuleCount, count_module, parse_formulas
from headcount.bench.isolated.target import Target, check_ranks, parse_target
from headcount.bench.macs import cases as compared_cases
from headcount.bench.macs import columns, convert, entries, grid, module, options, published, ranks, results, rules
from headcount.bench.macs import figures as figure_tables
from headcount.bench.measure import CLOSED_FORM, DEVICES, check_device, measure, parse_counters
from headcount.bench.output.base import Style
from headcount.bench.output.progress import stage
from headcount.bench.output.text import wrap_note
from headcount.bench.render import FORMATS
from headcount.bench.snapshot.sections import COMPARED
from headcount.bench.snapshot.sections import sections as saved_sections
from headcount.bench.table import Section
from headcount.bench.variants.variant import variants_with
from headcount.formulas.conventions import TRAINING
from headcount.formulas.plan import parse as parse_plan
from headcount.formulas.published import figures, tables
from headcount.formulas.rank import BYTES, REDUCTION
from headcount.models.configs import presets

PROG = "python -m bench.macs"


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """Return the command line parser of bench.macs."""
    return options.parser(prog, (__doc__ or "").replace(PROG, prog))


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run the command under the name ``prog``; return its exit code."""
    return serve(prog, parser(prog), plan, argv)


def plan(args: argparse.Namespace) -> Work | str:
    """Return the tables that ``args`` asks for. Raises for wrong usage before anything is printed."""
    if args.published:
        raise UsageError("--published was removed; count a torchvision model with --module FILE.py:FUNCTION")
    if args.list:
        return _listing()
    checked = args.check or args.audit
    sections, result = _job(args)
    return Work(
        sections,
        strict=checked or bool(args.module),
        remark=peak_memory,
        verdict="every verdict and every count is as stated" if checked else "",
        result=partial(result, in_flops=args.flops),
    )


def _job(args: argparse.Namespace) -> tuple[Iterator[Section], Callable[..., str]]:
    """Return the tables of the job that ``args`` asks for, and the function that formats the last line."""
    lengths = lengths_of(args)
    if args.columns and (args.module or args.audit):
        raise UsageError("--columns goes with --table, --preset, --grid and --compare")
    if args.plan or args.reduce_bytes is not None:
        return rank_sections(args), results.tables_result
    assumed = assumptions(args)
    if args.compare:
        return _comparison(args, lengths, assumed), results.comparison_result
    if args.rules and not args.columns:
        return _rules(args), results.rules_result
    if args.convert:
        return _conversions(args), results.conversion_result
    of_figures = [name for name in args.table or () if name in figures.names()]
    if of_figures and (args.columns or args.counter not in (None, [CLOSED_FORM])):
        option = "--columns" if args.columns else "--counter"
        raise UsageError(f"{option} goes with tables of MACs, not with {of_figures[0]}: closed forms only")
    nothing_counted = of_figures == args.table and not (args.preset or args.grid)
    counters = [] if nothing_counted else parse_counters(args.counter)
    if counters or args.module:
        require_package("torch")
        check_device(args.device)
    if args.module:
        others = [name for name in (*LENGTHS, "preset", "table", "grid") if getattr(args, name)]
        if others:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in others)
            raise UsageError(f"{flags} and --module do not go together; sizes of a module are set by --set NAME=VALUE")
        count = count_target(args.module, args, counters)
        ledger = module.ledger_section(args.module, count, args.depth)
        return module.sections(ledger, count, args.check), results.module_result
    if args.depth is not None or args.allow_unsupported or args.elementwise or args.formula or args.formula_set:
        raise UsageError("--depth, --allow-unsupported, --elementwise, --formula and --formula-set go with --module")
    if not args.preset:
        given = [f"--{name.replace('_', '-')}" for name, value in lengths.items() if value is not None]
        given += ["--set"] if args.set else []
        if given:
            raise UsageError(
                f"{', '.join(given)} go with --preset or --compare; a table has its paper's sizes, a grid its own"
            )
    if args.audit:
        from headcount.bench.macs import audit

        names = [name for name in counters if name in registry.NAMES]
        return audit.sections(names, args.device), results.audit_result
    names = args.table or ([] if args.preset or args.grid else tables.names(paper="moa"))
    parts = [_tables([name for name in names if name not in of_figures], counters, args, assumed)]
    parts.append(map(figure_tables.section, of_figures))
    if args.preset:
        parts.append(_presets(args, counters, assumed))
    for number, spec in enumerate(args.grid or (), 1):
        parts.append(_grid(spec, number, counters, args, assumed))
    return chain.from_iterable(parts), results.tables_result


def lengths_of(args: argparse.Namespace) -> dict[str, int | None]:
    """Return the lengths of a preset's input, None where not given."""
    return {name: getattr(args, name) for name in LENGTHS}


def _cases(args: argparse.Namespace) -> list[Case]:
    lengths = lengths_of(args)
    return [Case.of(name, presets.parse_overrides(name, args.set), lengths) for name in args.preset]


def assumptions(args) -> accounts.Assumptions:
    """Return the assumptions of --columns. Raises UsageError for its options without it, and for sizes below 1."""
    values = {one.name: getattr(args, one.name, None) for one in fields(accounts.Assumptions)}
    values = {name: value for name, value in values.items() if value not in (None, "")}
    flags = {name: accounts.OPTIONS.get(name, f"--{name.replace('_', '-')}") for name in values}
    if values and not args.columns:
        raise UsageError(f"{', '.join(flags.values())} needs --columns")
    for name, value in values.items():
        if name == "seconds" and value <= 0:
            raise UsageError(f"--seconds must be more than 0, not {value}")
        if name != "seconds" and not isinstance(value, str) and value < 1:
            raise UsageError(f"{flags[name]} must be at least 1, not {value}")
    if args.prices:
        values["prices"] = accounts.read_prices(args.prices)
    if args.peak:
        values["peak"] = parse_peak(args.peak)
    if args.rules and args.columns:
        values["rule"], *others = args.rules
        if others:
            raise UsageError(f"--columns take one of --rules, not {', '.join(args.rules)}")
    given = accounts.Assumptions(**values)
    # a table and a comparison have columns of their own, which they check
    others = args.preset or args.grid
    accounts.check([name for name in args.columns if others or name in accounts.ACCOUNTS], given)
    return given


def _tables(names, counters, args, given) -> Iterator[Section]:
    reproduced = [published.ReproducedTable(tables.load(name)) for name in names]
    cases = [case for table in reproduced for case in table.cases.values()]
    with published.counting(cases, counters, args.device) as counted:
        for table in reproduced:
            rows = (table.row(row, counted(case)) for row, case in table.cases.items())
            # without counters the rows are known now, and column widths fit them
            main, vocabularies = table.section(counters, rows if counters else list(rows)), table.vocabularies()
            main = columns.of_table(main, args.columns, given) if args.columns else main
            yield main if args.params or not vocabularies else published.without_vocabularies(main)
            yield from vocabularies if args.params else ()


def _presets(args, counters, given) -> Iterator[Section]:
    cases = _cases(args)
    for case in cases:
        # Raise for a length beyond the model's positions before anything is printed.
        _ = case.ledger
        if counters:
            case.check_runs()
    changed = f" with {', '.join(args.set)}" if args.set else ""

    def sections():
        for case in cases:
            with stage(f"counting {case.name}"):
                measured = measure(case, counters, device=args.device, causes=True)
            for section in entries.sections(case.name, measured, f"{case.name}{changed}: ledger"):
                # with --columns, the ledger is detail
                yield replace(section, detail=section.detail or bool(args.columns))
        if args.columns:
            heading = f"{', '.join(case.name for case in cases)}{changed}"
            yield columns.section_of(cases, heading, args.columns, given)

    return sections()


def _rules(args) -> Iterator[Section]:
    if not args.preset:
        raise UsageError("--rules goes with --preset, the models, and with --columns")
    if args.table or args.grid or args.counter or args.convert:
        raise UsageError("--rules goes without --table, --grid, --convert and --counter: closed forms only")
    return iter([rules.section(case, args.rules) for case in _cases(args)])


def _conversions(args) -> Iterator[Section]:
    if not args.preset:
        raise UsageError("--convert goes with --preset, the dense model")
    if args.table or args.grid or args.columns or args.counter:
        raise UsageError("--convert goes without --table, --grid, --columns and --counter: its rows are closed forms")
    how = convert.parse(args.convert)
    return chain.from_iterable([convert.sections(case, how) for case in _cases(args)])


def _comparison(args, lengths, given) -> Iterator[Section]:
    if args.table or args.preset or args.grid:
        raise UsageError("--compare goes without --table, --preset and --grid")
    if files := [text for text in args.compare if compared_cases.is_saved(text)]:
        if args.set or args.counter or args.columns or any(size is not None for size in lengths.values()):
            raise UsageError(
                f"{files[0]} is a count that was made: --set, --counter, --columns and lengths change nothing in it"
            )
        # files first: a missing one is the error, not the preset on the other side
        found = {text: compared_cases.parse_saved(text, files[0]) for text in (*files, *args.compare)}
        return iter(saved_sections(*(found[text] for text in args.compare), COMPARED))
    from headcount.bench.macs import compare

    lengths = lengths | {name: getattr(args, name) for name in ("image_size", "images")}
    a, b = (compared_cases.parse(text, args.set, lengths, args.input or (), args.dtype) for text in args.compare)
    # By default one counter validates each crossover.
    counters = parse_counters(args.counter or ["torch"])
    if counters:
        check_device(args.device)
        for case in (a, b):
            case.check_runs()
    found = compare.sections(a, b, counters, args.device)
    return iter(columns.of_comparison(found, (a, b), args.columns, given)) if args.columns else found


def count_target(spec: str, args: argparse.Namespace, counters: Sequence[str], **options: Any) -> ModuleCount:
    """Count the target that ``spec`` and ``args`` name. Raises UsageError for wrong usage.

    ``options`` are further ones of isolated.module_count.count_module.
    """
    require_package("torch")
    check_device(args.device)
    if args.depth is not None and args.depth < 1:
        raise UsageError(f"--depth must be at least 1, not {args.depth}")
    check_ranks(spec, args.plan, args.ranks, args.rank)
    return count_module(
        **vars(parse_target(spec, args)),
        counters=[name for name in counters if name in registry.NAMES],
        device=args.device,
        backward=args.backward,
        allow_unsupported=args.allow_unsupported,
        elementwise=args.elementwise or "report",
        formulas=parse_formulas(args.formula),
        formula_set=args.formula_set,
        plan=args.plan,
        ranks=args.ranks,
        rank=args.rank or 0,
        **options,
    )


def rank_sections(args) -> Iterator[Section]:
    """Return the tables of a rank of each preset under --plan, counted too where --counter names any."""
    if not (args.plan and args.preset):
        raise UsageError("--plan goes with --preset, and --reduce-bytes with --plan")
    if args.reduce_bytes is not None and args.reduce_bytes < 1:
        raise UsageError(f"--reduce-bytes must be at least 1, not {args.reduce_bytes}")
    plan = parse_plan(args.plan)
    element_bytes = {**BYTES, REDUCTION: args.reduce_bytes or BYTES[REDUCTION]}
    parts = []
    for name in args.preset:
        fields = presets.parse_overrides(name, args.set)
        case = Case.of(name, fields, lengths_of(args), plan=plan)
        target = Target(name, fields, lengths=case.lengths) if parse_counters(args.counter or [CLOSED_FORM]) else None
        options = {"target": target, "training": args.backward}
        parts.append(list(ranks.sections(case, args.columns, element_bytes, **options)))
    return chain.from_iterable(parts)


def _grid(text, number, counters, args, given) -> list[Section]:
    section = grid.section(grid.parse(text), counters, args.device)
    if number > 1:
        section = replace(section, table=replace(section.table, name=f"{section.table.name}-{number}"))
    return [columns.extended(section, args.columns, given) if args.columns else section]


def _listing() -> str:
    *others, last = (f"{', '.join(one.grid.letters)} ({one.label})" for one in variants_with("grid").values())
    grids = f"{', '.join(others)} or {last}"
    lines = [
        "tables    " + ", ".join(tables.names()),
        "figures   " + ", ".join(figures.names()),
        "presets   " + ", ".join(presets.PRESETS),
        "counters  " + ", ".join((CLOSED_FORM, *registry.CHOICES, "all")),
        "devices   " + ", ".join(DEVICES),
        "formats   " + ", ".join(FORMATS),
        "columns   " + ", ".join(accounts.ACCOUNTS),
        "rules     " + ", ".join(TRAINING),
        f"grids     {grids}, with d_m, T, S, B",
        "fields    of a preset: any wrong --set FIELD=VALUE names them",
    ]
    width = Style.of(sys.stdout).width
    return "\n".join(wrap_note(line, width) if width else line for line in lines)


if __name__ == "__main__":
    sys.exit(main())
