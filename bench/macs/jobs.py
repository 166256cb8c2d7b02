"""Jobs of bench.macs: the options that each accepts, and the tables that it prints.

A job has the name of the option of bench.macs that selects it; a verb (bench.macs.verbs) names its job itself.
"""

import textwrap
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import chain

from headcount.bench import accounts
from headcount.bench.case import LENGTHS, Case
from headcount.bench.cli import Work
from headcount.bench.counters import registry
from headcount.bench.env import peak_memory
from headcount.bench.errors import UsageError, require_package
from headcount.bench.hardware import parse_peak
from headcount.bench.isolated import target as targets
from headcount.bench.isolated.module_count import MEASURED, count_module
from headcount.bench.isolated.target import parse_target
from headcount.bench.macs import cases as compared_cases
from headcount.bench.macs import columns, convert, entries, grid, module, own, published, ranks, results
from headcount.bench.measure import CLOSED_FORM, DEVICES, check_device, measure, parse_counters
from headcount.bench.output.figure import check_format
from headcount.bench.output.progress import stage
from headcount.bench.render import FORMATS
from headcount.bench.snapshot.sections import COMPARED
from headcount.bench.snapshot.sections import sections as saved_sections
from headcount.bench.snapshot.snapshot import CountSnapshot, Target, snapshot_of_rank
from headcount.bench.table import Section
from headcount.bench.variants.variant import variants_with
from headcount.formulas import conventions
from headcount.formulas.plan import parse as parse_plan
from headcount.formulas.published import tables
from headcount.formulas.rank import BYTES, REDUCTION
from headcount.models.configs.presets import PRESETS, parse_overrides

DECODED = ("decode_macs", "decode_bytes", "kv_bytes")
"""Columns of --decode."""


@dataclass(frozen=True)
class Job:
    """The tables of a job, its result, and its options apart from --check and those of output.

    One that accepts presets needs them. ``strict``: failures of rows count without --check too.
    """

    sections: Callable[[Namespace], Iterable[Section]]
    result: Callable[[Sequence[Section], bool], str]
    takes: Sequence[str]
    strict: bool = False


def select(args: Namespace) -> str:
    """Return the name of the job that the options select. Raises UsageError for a removed option."""
    if args.published:
        raise UsageError("--published was removed; count a torchvision model with --module FILE.py:FUNCTION")
    if any(map(own.is_file, args.table)):
        return "file"
    # with --columns, --rules is one of their assumptions
    names = (name for name in JOBS if getattr(args, name, None) and not (name == "rules" and args.columns))
    return next(names, "table")


def plan(args: Namespace) -> Work | str:
    """Return the tables of the job of ``args``. Raises for wrong usage before anything is printed."""
    if args.list:
        return _listing()
    name = args.select(args)
    check_options(name, args)
    job = JOBS[name]
    return Work(
        job.sections(args),
        strict=job.strict or args.check,
        remark=peak_memory,
        result=partial(job.result, in_flops=args.flops),
    )


def check_options(name: str, args: Namespace) -> None:
    """Raise UsageError for an option that the job ``name`` does not accept, or if a required one is missing."""
    job, flags = JOBS[name], {**args.flags, "file": "a file of a table"}
    label = flags.get(name, f"this {name}")
    for option in dict.fromkeys((*JOBS, *chain.from_iterable(one.takes for one in JOBS.values()))):
        value = getattr(args, option, None)
        # a number of 0 is given
        if option in (name, *job.takes) or not (value or type(value) in (int, float)):
            continue
        others = ", ".join(flags[other] for other, one in JOBS.items() if option in one.takes and other in flags)
        raise UsageError(f"{flags[option]} does not go with {label}" + (f"; it goes with {others}" if others else ""))
    if "preset" in job.takes and not args.preset:
        raise UsageError(f"{label} needs {flags['preset']}")
    if args.plan and name != "compare":
        args.plan, *others = args.plan
        if others:
            raise UsageError("two plans are compared by headcount compare PRESET --plan P Q")


def assumptions(args: Namespace) -> accounts.Assumptions:
    """Return the assumptions of --columns. Raises UsageError for its options without it."""
    values = {name: value for name in ASSUMPTIONS if (value := getattr(args, name)) is not None}
    if values and not args.columns:
        raise UsageError(f"{', '.join(args.flags[name] for name in values)} needs --columns")
    if args.prices:
        values["prices"] = accounts.read_prices(args.prices)
    if args.peak:
        values["peak"] = parse_peak(args.peak)
    if args.rules and args.columns:
        values["rule"], *others = args.rules
        if others:
            raise UsageError(f"--columns take one of --rules, not {', '.join(args.rules)}")
    given = accounts.Assumptions(**values)
    # tables and comparisons check their columns themselves, because they have others too
    if args.preset or args.grid or args.module:
        accounts.check(args.columns, given, columns.OF_RUN if args.module and args.module not in PRESETS else ())
    return given


def _cases(args: Namespace) -> list[Case]:
    lengths = {name: getattr(args, name) for name in LENGTHS}
    return [Case.of(name, parse_overrides(name, args.set), lengths) for name in args.preset]


def _tables(args: Namespace) -> Iterator[Section]:
    """Yield the tables of papers."""
    given, names = assumptions(args), args.table or tables.names(paper="moa")
    of_figures = [name for name in names if name in tables.figure_names()]
    if of_figures and (args.columns or args.counter not in (None, [CLOSED_FORM])):
        option = "--columns" if args.columns else "--counter"
        raise UsageError(f"{option} goes with tables of MACs, not with {of_figures[0]}: closed forms only")
    counters = _counters(args) if of_figures != names else []
    reproduced = [published.ReproducedTable(tables.load(name)) for name in names if name not in of_figures]
    cases = [case for table in reproduced for case in table.cases.values()]
    with published.counting(cases, counters, args.device) as counted:
        for table in reproduced:
            rows = (table.row(row, counted(case)) for row, case in table.cases.items())
            # without counters the rows are known now, and column widths fit them
            main = table.section(counters, rows if counters else list(rows))
            yield columns.of_table(main, args.columns, given) if args.columns else main
            yield from table.vocabularies() if args.params else ()
    yield from map(published.figures_section, of_figures)


def _grids(args: Namespace) -> list[Section]:
    given, counters = assumptions(args), _counters(args)
    names = ["grid", *(f"grid-{number}" for number in range(2, len(args.grid) + 1))]
    found = [
        grid.section(grid.parse(spec), counters, args.device, name) for spec, name in zip(args.grid, names, strict=True)
    ]
    return [columns.extended(section, args.columns, given) for section in found] if args.columns else found


def _counters(args: Namespace) -> list[str]:
    """Return the counters of ``args``. Raises EnvironmentMissing for those and for a device that are not there."""
    counters = parse_counters(args.counter)
    if counters:
        require_package("torch")
        check_device(args.device)
    return counters


def _presets(args: Namespace) -> Iterator[Section]:
    given, counters, cases = assumptions(args), _counters(args), _cases(args)
    for case in cases:
        # Raise for a length beyond the model's positions before anything is printed.
        _ = case.ledger
        if counters:
            case.check_runs()
    changed = f" with {', '.join(args.set)}" if args.set else ""
    for case in cases:
        with stage(f"counting {case.name}"):
            measured = measure(case, counters, device=args.device, causes=True)
        for section in entries.sections(case.name, measured, f"{case.name}{changed}: ledger"):
            # with --columns, the ledger is detail
            yield replace(section, detail=section.detail or bool(args.columns))
    if args.columns:
        heading = f"{', '.join(case.name for case in cases)}{changed}"
        yield columns.section_of(cases, heading, args.columns, given)


def _comparison(args: Namespace) -> Iterable[Section]:
    if args.plan:
        return _rank_difference(args)
    given, (a, b) = assumptions(args), _sides(args)
    saved = [getattr(side, "saved", side) for side in (a, b)]
    if any(isinstance(side, CountSnapshot) for side in (a, b)):
        if args.counter or args.columns:
            raise UsageError("--counter and --columns go with models that are counted now, and no file of a count")
        return saved_sections(*saved, COMPARED)
    from headcount.bench.macs import compare

    # By default one counter validates each crossover.
    counters = parse_counters(args.counter or ["torch"])
    if counters:
        check_device(args.device)
        for case in (a, b):
            case.check_runs()
    sections = compare.sections(a, b, counters, args.device)
    return columns.of_comparison(sections, (a, b), args.columns, given) if args.columns else sections


def _sides(args: Namespace) -> list[compared_cases.Side]:
    """Return the models that a comparison names, with the options that change them."""
    given = {name: value for name in (*TARGET, *LENGTHS) if (value := getattr(args, name)) not in (None, [])}
    return compared_cases.parse_sides(args.compare, given, args.flags)


def _rank_difference(args: Namespace) -> list[Section]:
    """Return the differences of a rank's closed form, of two plans or of two presets under one."""
    pairs = [(text, plan) for text in args.compare for plan in args.plan]
    if len(pairs) != 2:
        raise UsageError("--plan takes two plans for one preset, or one plan for two")
    for text in args.compare:
        if text.partition(",")[0] not in PRESETS:
            raise UsageError(f"--plan compares presets, and {text} is none")
    found, cases = [], dict(zip(args.compare, _sides(args), strict=True))
    for text, plan in pairs:
        case = cases[text]
        slowest = max(replace(case, plan=parse_plan(plan)).ranks, key=lambda cost: cost.step_macs)
        found.append(snapshot_of_rank(f"{text}, {plan}, stage {slowest.stage}", slowest))
    return saved_sections(*found, COMPARED)


def _module(args: Namespace) -> Iterable[Section]:
    """Return the tables of a target: a user module, a configuration or a preset as a module."""
    counters = parse_counters(args.counter or ([CLOSED_FORM] if args.plan else None))
    if args.plan and (counters or args.decode or args.device):
        raise UsageError("--plan counts a rank on meta: it goes without --counter, --decode and --device")
    if args.backward and counters:
        raise UsageError("--backward goes without --counter: the other tools count the forward pass")
    if args.rules and not (args.module in PRESETS or args.columns or args.decode):
        raise UsageError(f"--rules without --columns goes with a preset, and {args.module} is none")
    if args.decode:
        args.columns = list(dict.fromkeys((*args.columns, *DECODED)))
    given, case, target = assumptions(args), None, parse_target(args.module, args)
    if args.module in PRESETS:
        case = Case.of(target.spec, target.settings, target.lengths)
        case.check_runs()
    if args.plot:
        check_format(args.plot)
        require_package("matplotlib")
    require_package("torch")
    check_device(args.device)
    count = count_module(
        target,
        [name for name in counters if name in registry.NAMES],
        columns=[] if case else [name for name in args.columns if name in MEASURED],
        context=given.context,
        window=given.window,
        bytes_each=given.bytes_each,
    )
    # its bytes need no count, so that a reason is of the step
    if args.decode and isinstance(why_not := count.measured.get("kv_bytes"), str):
        raise UsageError(why_not)
    found = module.sections(args.module, count, args.depth or 3, bool(args.elementwise), args.check)
    if args.plot:
        module.plot(args.plot, count, args.depth)
    if args.columns and case:
        found.append(columns.section_of([case], args.module, args.columns, given))
    elif args.columns:
        found.append(columns.of_module(count, args.module, args.columns, given))
    elif args.rules:
        found.append(entries.rules_section(case, args.rules))
    return found


def _ranks(args: Namespace) -> Iterator[Section]:
    """Return the tables of a rank of each preset under --plan, counted too where --counter names headcount."""
    counters = parse_counters(args.counter or [CLOSED_FORM])
    if others := [name for name in counters if name != "headcount"]:
        raise UsageError(f"--plan counts a rank on meta: it takes --counter headcount, not {others[0]}")
    element_bytes = {**BYTES, REDUCTION: args.reduce_bytes or BYTES[REDUCTION]}
    parts = []
    for case in _cases(args):
        case = replace(case, plan=parse_plan(args.plan))
        target = Target(case.preset, parse_overrides(case.preset, args.set), lengths=case.lengths) if counters else None
        options = {"target": target, "training": args.backward}
        parts += ranks.sections(case, args.columns, element_bytes, **options)
    return iter(parts)


def _conversions(args: Namespace) -> Iterator[Section]:
    how = convert.parse(args.convert)
    return chain.from_iterable([convert.sections(case, how) for case in _cases(args)])


def _rules(args: Namespace) -> list[Section]:
    return [entries.rules_section(case, args.rules) for case in _cases(args)]


def _audit(args: Namespace) -> Iterator[Section]:
    counters = _counters(args)
    from headcount.bench.macs import audit

    return audit.sections([name for name in counters if name in registry.NAMES], args.device)


ASSUMPTIONS = [one.name for one in fields(accounts.Assumptions) if one.name != "rule"]
TRAINING = ("rules", "tokens", "seconds", "devices", "peak")
MEMORY = ("columns", *(name for name in ASSUMPTIONS if name not in TRAINING))
COUNTED = ("counter", "device")
TABLES = (*COUNTED, *MEMORY, *TRAINING)
SIZES = ("set", *LENGTHS)
TARGET = ("set", "input", "dtype", *targets.LENGTHS)
OPERATORS = ("depth", "allow_unsupported", "formula", "formula_set", "elementwise")
MODULE = (*OPERATORS, "backward", "decode", "plot")
RANKS = ("plan", "ranks", "rank")
RANK = ("counter", "columns", "backward", "reduce_bytes")
JOBS = {
    "module": Job(_module, results.module_result, (*TARGET, *TABLES, *MODULE, *RANKS), strict=True),
    "compare": Job(_comparison, results.comparison_result, (*TARGET, *LENGTHS, *TABLES, "plan")),
    "plan": Job(_ranks, results.ranks_result, ("preset", *SIZES, *RANK), strict=True),
    "convert": Job(_conversions, results.conversion_result, ("preset", *SIZES)),
    "rules": Job(_rules, results.rules_result, ("preset", *SIZES)),
    "audit": Job(_audit, results.audit_result, COUNTED, strict=True),
    "preset": Job(_presets, results.presets_result, (*TABLES, *SIZES)),
    "grid": Job(_grids, results.grids_result, TABLES),
    "table": Job(_tables, results.tables_result, (*TABLES, "params")),
    "file": Job(own.sections, own.result, ("table", "own_rule", "find_rule", "trust")),
}
"""Jobs in the order in which options select them; ``file`` is a table of the user."""


def _listing() -> str:
    *others, last = (f"{', '.join(one.grid.letters)} ({one.label})" for one in variants_with("grid").values())
    grids = f"{', '.join(others)} or {last}"
    lines = [
        "tables    " + ", ".join(tables.names()),
        "figures   " + ", ".join(tables.figure_names()),
        "presets   " + ", ".join(PRESETS),
        "counters  " + ", ".join((CLOSED_FORM, *registry.COUNTERS, "all")),
        "devices   " + ", ".join(DEVICES),
        "formats   " + ", ".join(FORMATS),
        "columns   " + ", ".join(accounts.ACCOUNTS),
        "rules     " + ", ".join(conventions.TRAINING),
        f"grids     {grids}, with d_m, T, S, B",
        "fields    of a preset: any wrong --set FIELD=VALUE names them",
    ]
    wrap = partial(textwrap.fill, width=80, subsequent_indent=10 * " ", break_on_hyphens=False, break_long_words=False)
    return "\n".join(map(wrap, lines))
