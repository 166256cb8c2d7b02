"""Verbs: ``headcount count``, ``table``, ``grid``, ``compare``, ``audit`` and ``convert``, parts of bench.macs."""

from argparse import Namespace
from collections.abc import Callable, Collection
from dataclasses import dataclass

from headcount.bench.errors import UsageError
from headcount.bench.macs.jobs import COUNTED, MEMORY, MODULE, OPERATORS, RANKS, SIZES, TARGET, TRAINING, select
from headcount.bench.macs.options import MODEL
from headcount.bench.measure import CLOSED_FORM
from headcount.models.configs.presets import PRESETS

FURTHER = (
    "formula", "formula_set", "elementwise", "allow_unsupported", "generate", "element_bytes", "weight_bytes",
    "cache_bytes", "peak_macs_per_s", "bytes_per_s", "tokens", "seconds", "devices", "wide", "unit", "version",
)  # fmt: skip
"""Options that a verb's help names in one line, so that it fits on a screen; that of bench.macs explains them."""


@dataclass(frozen=True)
class Verb:
    """A verb: its usage and description, and its part of the options of bench.macs.

    ``positional``: the option that is an argument without a flag, of which there are ``nargs``; ``metavar`` and
    ``help`` replace those of the option. ``offers``: the other options. ``select`` returns the name of the job, and
    sets what that job takes instead.
    """

    usage: str
    description: str
    positional: str
    offers: Collection[str]
    nargs: str | None = None
    metavar: str = ""
    help: str = ""
    select: Callable[[Namespace], str] = select


def _count(args: Namespace) -> str:
    if args.plan and args.ranks is None and args.module in PRESETS:
        args.preset, args.module, args.counter = [args.module], None, args.counter or ["headcount"]
        return "plan"
    args.counter = args.counter or [CLOSED_FORM]
    return "module"


def _compare(args: Namespace) -> str:
    models, by_rules = args.compare, args.rules and not args.columns
    if len(models) != (1 if by_rules else 2) and (by_rules or not args.plan):
        raise UsageError("a comparison is of two models, A B, or of one: A --rules palm 6n, or A --plan P Q")
    if not by_rules:
        return "compare"
    name, *changed = models[0].split(",")
    args.preset, args.set, args.compare = [name], [*args.set, *changed], None
    return "rules"


def _convert(args: Namespace) -> str:
    words = args.convert
    args.preset, args.convert = ([word for word in words if ("=" in word) == is_size] for is_size in (False, True))
    if not (args.preset and args.convert):
        raise UsageError("a conversion is of a preset to sizes; write headcount convert PRESET s=16 r=8")
    return "convert"


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
        "module",
        (*TARGET, *COUNTED, *MODULE, *MEMORY, *TRAINING, *RANKS, "reduce_bytes"),
        select=_count,
    ),
    "table": Verb(
        "[NAME …]",
        """The papers' MAC and parameter columns or those of your file, each printed number judged.

    headcount table moa-table3
    headcount table moh-llm --columns kv_bytes
    headcount table mypaper.toml --format latex
    headcount table mypaper.csv --find-rule
""",
        "table",
        ("list", "own_rule", "find_rule", "trust", "params", "check", *COUNTED, *MEMORY),
        "*",
    ),
    "grid": Verb(
        "SPEC …",
        """One attention layer at every combination of sizes.

    headcount grid 'K=1,2,4 E=8 D=64 T=10,128'
""",
        "grid",
        ("check", *COUNTED, *MEMORY, *TRAINING),
        "+",
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
        "compare",
        (*TARGET, "plan", *COUNTED, *MEMORY, *TRAINING),
        "+",
        help=f"{MODEL}, with ,FIELD=VALUE,… behind it, or a lock or JSON of a count; one alone with --rules or --plan",
        select=_compare,
    ),
    "audit": Verb(
        "[TARGET]",
        """What all installed counters report, and the calls that make each difference.

    headcount audit model.py:make
    headcount audit --device meta     equivalent formulations of each layer
""",
        "module",
        (*TARGET, *COUNTED, *OPERATORS),
        "?",
        help=f"{MODEL} (default: formulations of each layer)",
        select=lambda args: "module" if args.module else "audit",
    ),
    "convert": Verb(
        "PRESET … s=N r=N",
        """A dense preset as mixture-of-head attention.

    headcount convert llama3-8b s=16 r=8
""",
        "convert",
        SIZES,
        "+",
        "WORD",
        "presets, then s=N r=N",
        _convert,
    ),
}
