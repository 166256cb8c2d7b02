"""Verbs, each a job of bench.macs: ``headcount count``, ``table``, ``grid``, ``compare``, ``audit`` and ``convert``."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headcount.bench.cli import Parser, Work, add_output, serve
from headcount.bench.errors import UsageError
from headcount.bench.isolated.target import add_ranks, add_target_options
from headcount.bench.macs import jobs, options, own
from headcount.bench.measure import CLOSED_FORM
from headcount.bench.output.arguments import BriefHelp
from headcount.formulas.published import figures, tables
from headcount.formulas.published.own import RULES
from headcount.models.configs.presets import PRESETS

TARGET = "preset, FILE.py:FUNCTION or :CLASS, config.json, hf:NAME"
FURTHER = (
    "formula", "formula_set", "elementwise", "allow_unsupported", "generate", "element_bytes",
    "peak_macs_per_s", "bytes_per_s", "tokens", "seconds", "devices", "wide", "unit", "version",
)  # fmt: skip
"""Options that a verb's help names in one line, so that it fits on a screen; that of bench.macs explains them."""


@dataclass(frozen=True)
class Verb:
    """A verb's ``usage`` and description, the function that adds its options, and the one that names its job.

    ``select`` sets the option of bench.macs that selects the job (bench.macs.jobs); None where the verb has it.
    """

    usage: str
    description: str
    add_options: Callable[[Parser], None]
    select: Callable[[argparse.Namespace], None] | None = None


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
    args = argparse.Namespace(**defaults | {name: value for name, value in vars(args).items() if value is not None})
    if select := VERBS[prog.split()[-1]].select:
        select(args)
    return jobs.plan(args)


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


def _count(args: argparse.Namespace) -> None:
    if args.plan and args.ranks is None and args.target in PRESETS:
        args.preset, args.counter = [args.target], args.counter or ["headcount"]
    else:
        args.module, args.counter = args.target, args.counter or [CLOSED_FORM]


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
    file.add_argument(
        "--rule", dest="own_rule", metavar="RULE", choices=RULES, help=f"in place of the file's: {', '.join(RULES)}"
    )
    file.add_argument("--find-rule", action="store_true", help="list all rules by the number of rows that they print")
    file.add_argument("--trust", action="store_true", help="run code from outside of the table's folder too")
    how = out.add_argument_group("how to count")
    how.add_argument("--params", action="store_true", help="also the vocabularies that fit the printed parameters")
    _add_check(how)
    options.add_counters(how)
    options.add_memory(out.add_argument_group("memory and decoding"))


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


def _compare(args: argparse.Namespace) -> None:
    if args.b and args.rules and not args.columns:
        raise UsageError("two --rules go with one model: headcount compare A --rules palm 6n")
    if args.plan or args.b:
        args.compare = [args.a, args.b] if args.b else [args.a]
    elif not args.rules or args.columns:
        raise UsageError("one model has nothing to compare with; write B, --rules palm 6n, or --plan P Q")
    else:
        name, *changed = args.a.split(",")
        args.preset, args.set = [name], [*args.set, *changed]


def _add_audit(out: Parser) -> None:
    text = "as of headcount count (default: equivalent formulations of each layer)"
    model = out.add_argument_group("the model")
    model.add_argument("target", nargs="?", metavar="TARGET", help=text)
    add_target_options(model)
    how = out.add_argument_group("how to count")
    options.add_counters(how)
    options.add_modules(how)


def _audit(args: argparse.Namespace) -> None:
    args.module, args.audit = args.target, not args.target


def _add_convert(out: Parser) -> None:
    out.add_argument("words", nargs="+", metavar="WORD", help="presets, then s=N r=N, and router=linear for matrices")
    options.add_sizes(out.add_argument_group("sizes"))


def _convert(args: argparse.Namespace) -> None:
    args.preset = [word for word in args.words if "=" not in word]
    args.convert = [word for word in args.words if "=" in word]
    if not args.convert:
        raise UsageError("nothing to convert to; write headcount convert PRESET s=16 r=8")


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
    ),
    "grid": Verb(
        "SPEC …",
        """One attention layer at every combination of sizes.

    headcount grid 'K=1,2,4 E=8 D=64 T=10,128'
""",
        _add_grid,
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
