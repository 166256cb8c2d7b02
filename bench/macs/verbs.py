"""Verbs, each a job of bench.macs: ``headcount count``, ``table``, ``grid``, ``compare``, ``audit`` and ``convert``."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from headcount.bench import accounts
from headcount.bench.case import Case
from headcount.bench.cli import Parser, Work, add_output, serve
from headcount.bench.env import peak_memory
from headcount.bench.errors import UsageError
from headcount.bench.isolated.module_count import MEASURED
from headcount.bench.isolated.target import add_ranks, add_target_options, parse_target
from headcount.bench.macs import __main__ as macs
from headcount.bench.macs import columns, module, options, own, results, rules, tree
from headcount.bench.measure import parse_counters
from headcount.bench.output.arguments import BriefHelp
from headcount.bench.snapshot.sections import COMPARED
from headcount.bench.snapshot.sections import sections as saved_sections
from headcount.bench.snapshot.snapshot import snapshot_of_rank
from headcount.bench.table import Section
from headcount.formulas.ledger import Ledger
from headcount.formulas.plan import parse as parse_plan
from headcount.formulas.published import figures, tables
from headcount.formulas.published.own import RULES
from headcount.models.configs.presets import PRESETS, assignments, parse_overrides

TARGET = "preset, FILE.py:FUNCTION or :CLASS, config.json, hf:NAME"
DECODED = ("decode_macs", "decode_bytes", "kv_bytes")
"""Columns of --decode."""
FURTHER = (
    "formula", "formula_set", "elementwise", "allow_unsupported", "generate", "element_bytes",
    "peak_macs_per_s", "bytes_per_s", "tokens", "seconds", "devices", "wide", "unit", "version",
)  # fmt: skip
"""Options that a verb's help names in one line, so that it fits on a screen; that of bench.macs explains them."""


@dataclass(frozen=True)
class Verb:
    """A verb's ``usage`` and description, the function that adds its options, and the one that plans its work."""

    usage: str
    description: str
    add_options: Callable[[Parser], None]
    plan: Callable[[argparse.Namespace], Work | str]


def parser(prog: str) -> argparse.ArgumentParser:
    """Return the command line of the verb that ends ``prog``."""
    verb = VERBS[prog.split()[-1]]
    usage = f"{prog} {verb.usage} [OPTION …]"
    out = Parser(prog=prog, usage=usage, description=verb.description, help=BriefHelp, add_help=False)
    out.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
    verb.add_options(out)
    add_output(out)
    further = [action for action in out._actions if action.dest in FURTHER and action.help != argparse.SUPPRESS]
    out.epilog = f"Further options (headcount macs --help): {', '.join(one.option_strings[-1] for one in further)}"
    for action in further:
        action.help = argparse.SUPPRESS
    return out


def main(argv: Sequence[str] | None = None, prog: str = "headcount count") -> int:
    """Run the verb that ends ``prog``; return its exit code."""
    return serve(prog, parser(prog), lambda args: _plan(prog, args), argv)


def _plan(prog: str, args: argparse.Namespace) -> Work | str:
    # options that a verb does not offer have the defaults of bench.macs
    defaults = vars(options.parser(prog, "").parse_args([]))
    given = {name: value for name, value in vars(args).items() if value is not None}
    return VERBS[prog.split()[-1]].plan(argparse.Namespace(**defaults | given))


def _add_count(out: Parser) -> None:
    model = out.add_argument_group("the model")
    model.add_argument("target", metavar="TARGET", help=TARGET)
    add_target_options(model)
    how = out.add_argument_group("how to count")
    how.add_argument("--backward", action="store_true", help="count the gradients too")
    options.add_counters(how)
    options.add_modules(how)
    how.add_argument("--plot", metavar="FILE", help="draw the share of MACs by module: .pdf, .svg or .png")
    memory = out.add_argument_group("memory and decoding")
    memory.add_argument("--decode", action="store_true", help="add one decode step: its MACs and bytes")
    options.add_memory(memory)
    options.add_rules(out.add_argument_group("training"))
    devices = out.add_argument_group("one rank of many devices")
    options.plan_options(devices)
    add_ranks(devices)


def _count(args: argparse.Namespace) -> Work:
    counters = parse_counters(args.counter) if args.counter else []
    if args.plan and (counters or args.decode or args.device):
        raise UsageError("--plan counts a rank on meta: it goes without --counter, --decode and --device")
    if args.plan and args.ranks is None and args.target in PRESETS:
        args.preset, args.counter = [args.target], ["headcount"]
        return Work(macs.rank_sections(args), remark=peak_memory, result=results.ranks_result)
    if args.backward and counters:
        raise UsageError("--backward goes without --counter: the other tools count the forward pass")
    return _work(args, _target_sections(args, counters))


def _work(args: argparse.Namespace, sections: Iterator[Section]) -> Work:
    """Return the tables of one target."""
    result = partial(results.module_result, in_flops=args.flops)
    return Work(sections, remark=peak_memory, result=result)


def _target_sections(args: argparse.Namespace, counters: Sequence[str]) -> Iterator[Section]:
    """Return the tables of a target, and those of --columns and --decode."""
    is_preset = args.target in PRESETS
    if args.decode:
        args.columns = list(dict.fromkeys((*args.columns, *DECODED)))
    if args.rules and not (is_preset or args.columns):
        raise UsageError(f"--rules without --columns goes with a preset, and {args.target} is none")
    given, extra = macs.assumptions(args), {}
    if is_preset:
        accounts.check(args.columns, given)
        target = parse_target(args.target, args)
        case = Case.of(target.spec, target.settings, target.lengths)
        case.check_runs()
    else:
        columns.check_of_module(args.columns)
        extra = {"columns": [name for name in args.columns if name in MEASURED], "context": given.context}
        extra["element_bytes"] = given.element_bytes
    if args.plot:
        tree.check_plot(args.plot)
    count = macs.count_target(args.target, args, counters, **extra)
    # its bytes need no count, so that a reason is of the step
    if args.decode and isinstance(why_not := count.measured.get("kv_bytes"), str):
        raise UsageError(why_not)
    shown = count if args.elementwise else replace(count, elementwise=Ledger(()))
    found = tree.section(args.target, count, args.depth or 3)
    parts = [module.sections(found, shown, args.check)]
    if args.plot:
        tree.plot(args.plot, found)
    if args.columns and is_preset:
        parts.append([columns.section_of([case], args.target, args.columns, given)])
    elif args.columns:
        parts.append([columns.of_module(count, args.target, args.columns, given)])
    elif args.rules:
        parts.append([rules.section(case, args.rules)])
    return chain(*parts)


class _Names(tuple[str, ...]):
    """Names of tables, and any file of a table."""

    def __contains__(self, text: object) -> bool:
        return super().__contains__(text) or own.is_file(str(text))


def _add_table(out: Parser) -> None:
    out.add_argument(
        "table", nargs="*", metavar="NAME", choices=_Names((*tables.names(), *figures.names())), default=(),
        help="a name of headcount macs --list, or your FILE.toml or .csv (default: those of arXiv 2210.05144)",
    )  # fmt: skip
    file = out.add_argument_group("your table")
    file.add_argument("--rule", metavar="RULE", choices=RULES, help=f"in place of the file's: {', '.join(RULES)}")
    file.add_argument("--find-rule", action="store_true", help="list all rules by the number of rows that they print")
    file.add_argument("--trust", action="store_true", help="run code from outside of the table's folder too")
    how = out.add_argument_group("how to count")
    how.add_argument("--params", action="store_true", help="also the vocabularies that fit the printed parameters")
    _add_check(how)
    options.add_counters(how)
    options.add_memory(out.add_argument_group("memory and decoding"))


def _table(args: argparse.Namespace) -> Work | str:
    if any(map(own.is_file, args.table)):
        return own.plan(args)
    if args.rule or args.find_rule or args.trust:
        raise UsageError("--rule, --find-rule and --trust go with a file of your own, FILE.toml or FILE.csv")
    return macs.plan(args)


def _add_grid(out: Parser) -> None:
    out.add_argument("grid", nargs="+", metavar="SPEC", help="'K=1,2 E=8 D=64 T=10,128', or a TOML file like it")
    how = out.add_argument_group("how to count")
    _add_check(how)
    options.add_counters(how)
    options.add_memory(out.add_argument_group("memory and decoding"))
    options.add_rules(out.add_argument_group("training"))


def _add_check(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--check", action="store_true", help="exit with code 1 if a number is not as stated")


def _add_compare(out: Parser) -> None:
    text = "a TARGET of headcount count, with ,FIELD=VALUE,… behind it, or the lock or JSON of a count"
    models = out.add_argument_group("the models")
    models.add_argument("a", metavar="A", help=text)
    models.add_argument("b", metavar="B", nargs="?", help="the other one; without it A by two --rules or --plan")
    add_target_options(models)
    text = "one rank of presets, in closed form: two plans of A, or one plan of A and B"
    models.add_argument("--plan", nargs="+", metavar="PLAN", help=text)
    options.add_counters(out.add_argument_group("how to count"))
    options.add_memory(out.add_argument_group("memory and decoding"))
    options.add_rules(out.add_argument_group("training"))


def _compare(args: argparse.Namespace) -> Work | str:
    if args.plan:
        args.compare = [args.a] if args.b is None else [args.a, args.b]
        return Work(_rank_difference(args), remark=peak_memory)
    if args.b:
        if args.rules and not args.columns:
            raise UsageError("two --rules go with one model: headcount compare A --rules palm 6n")
        args.compare = [args.a, args.b]
    elif not args.rules or args.columns:
        raise UsageError("one model has nothing to compare with; write B, --rules palm 6n, or --plan P Q")
    else:
        name, *changed = args.a.split(",")
        args.preset, args.set = [name], [*args.set, *changed]
    return macs.plan(args)


def _rank_difference(args: argparse.Namespace) -> list[Section]:
    """Return the differences of a rank's closed form, of two plans or of two presets under one."""
    pairs = [(text, plan) for text in args.compare for plan in args.plan]
    if len(pairs) != 2:
        raise UsageError("--plan takes two plans for one preset, or one plan for two")
    if others := [text for text in args.compare if text.partition(",")[0] not in PRESETS]:
        raise UsageError(f"--plan compares presets, and {others[0]} is none")
    found = []
    for text, plan in pairs:
        name = text.partition(",")[0]
        fields = parse_overrides(name, assignments(",".join((text, *args.set))))
        costs = Case.of(name, fields, macs.lengths_of(args), plan=parse_plan(plan)).ranks
        slowest = max(costs, key=lambda cost: cost.step_macs)
        found.append(snapshot_of_rank(f"{text}, {plan}, stage {slowest.stage}", slowest))
    return saved_sections(*found, COMPARED)


def _add_audit(out: Parser) -> None:
    text = "as of headcount count (default: equivalent formulations of each layer)"
    model = out.add_argument_group("the model")
    model.add_argument("target", nargs="?", metavar="TARGET", help=text)
    add_target_options(model)
    how = out.add_argument_group("how to count")
    options.add_counters(how)
    options.add_modules(how)


def _audit(args: argparse.Namespace) -> Work | str:
    if args.target:
        return _work(args, _target_sections(args, parse_counters(args.counter)))
    args.audit = True
    return macs.plan(args)


def _add_convert(out: Parser) -> None:
    out.add_argument("words", nargs="+", metavar="WORD", help="presets, then s=N r=N, and router=linear for matrices")
    options.add_sizes(out.add_argument_group("sizes"))


def _convert(args: argparse.Namespace) -> Work | str:
    args.preset = [word for word in args.words if "=" not in word]
    args.convert = [word for word in args.words if "=" in word]
    if not args.convert:
        raise UsageError("nothing to convert to; write headcount convert PRESET s=16 r=8")
    return macs.plan(args)


VERBS = {
    "count": Verb(
        "TARGET",
        """MACs and parameters of one model, counted exactly.

    headcount count config.json --seq-len 1024
    headcount count model.py:Net --input 1,3,224,224
    headcount count model.py:make --set n=7     make returns (module, inputs)
    headcount count llama3-8b --counter torch fvcore
    headcount count llama3-8b --plan tp=8,sp            one rank, against its closed form
    headcount count model.py:make --ranks 8 --plan plan.py:apply    one rank, divided by apply(module)
""",
        _add_count,
        _count,
    ),
    "table": Verb(
        "[NAME …]",
        """The papers' MAC and parameter columns or those of your file, each printed number judged.

    headcount table moa-table3
    headcount table moh-llm --columns kv_bytes
    headcount table mypaper.toml --format latex
    headcount table mypaper.csv --find-rule
""",
        _add_table,
        _table,
    ),
    "grid": Verb(
        "SPEC …",
        """One attention layer at every combination of sizes.

    headcount grid 'K=1,2,4 E=8 D=64 T=10,128'
""",
        _add_grid,
        macs.plan,
    ),
    "compare": Verb(
        "A [B]",
        """The difference of two models by module and kind, and the sizes where it changes its sign.

    headcount compare moa-16K32E256D transformer-big
    headcount compare model.py:make model.py:make,width=11
    headcount compare old/config.json new/config.json --seq-len 1024
    headcount compare llama3-8b --plan tp=8 tp=8,sp
    headcount compare llama3-8b --rules palm 6n
""",
        _add_compare,
        _compare,
    ),
    "audit": Verb(
        "[TARGET]",
        """What all installed counters report, and the calls that make each difference.

    headcount audit model.py:make
    headcount audit --device meta
""",
        _add_audit,
        _audit,
    ),
    "convert": Verb(
        "PRESET … s=N r=N",
        """A dense preset as mixture-of-head attention.

    headcount convert llama3-8b s=16 r=8
""",
        _add_convert,
        _convert,
    ),
}
