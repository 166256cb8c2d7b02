"""Options of bench.macs."""

import argparse

from headcount.bench import accounts
from headcount.bench.case import LENGTHS
from headcount.bench.cli import Parser, add_output
from headcount.bench.contractions import linalg
from headcount.bench.counters import registry
from headcount.bench.measure import CLOSED_FORM, DEVICES
from headcount.bench.output.arguments import Value
from headcount.formulas.conventions import TRAINING
from headcount.formulas.plan import GRAMMAR
from headcount.formulas.published import figures, tables
from headcount.models.configs.numbers import parse_float, parse_int

COUNT = Value("number from 1 on", parse_int, lambda number: number >= 1)
POSITIVE = Value("number above 0", parse_float, lambda number: number > 0)


def parser(prog: str, description: str) -> argparse.ArgumentParser:
    """Return the parser with every option, in groups."""
    out = Parser(prog=prog, description=description)
    out.instead = "did you mean headcount count"
    what = out.add_argument_group("what to count")
    _what(what)
    add_rules(out.add_argument_group("training"))
    add_sizes(out.add_argument_group("sizes"))
    add_counters(out.add_argument_group("counters"))
    add_modules(out.add_argument_group("your module, with --module"))
    add_memory(out.add_argument_group("memory and decoding"))
    plan_options(out.add_argument_group("many devices"))
    add_output(out)
    # what only the verbs offer
    unset = ("b", "target", "input", "dtype", "image_size", "images", "ranks", "rank", "plot", "own_rule")
    out.set_defaults(**dict.fromkeys(unset), **dict.fromkeys(("backward", "decode", "find_rule", "trust"), False))
    return out


def _what(group) -> None:
    add = group.add_argument
    add(
        "--table", nargs="+", metavar="NAME", choices=(*tables.names(), *figures.names()),
        help=f"MACs: {', '.join(tables.names())}; training FLOPs and sizes: {', '.join(figures.names())}",
    )  # fmt: skip
    add("--params", action="store_true", help="with tables: also vocabularies that fit the parameters")
    add("--preset", nargs="+", metavar="NAME", help="models by name (see --list)")
    add("--grid", nargs="+", metavar="SPEC", help="'K=1,2 E=8 D=64 T=10,128', or a TOML file like it")
    add(
        "--compare",
        nargs=2,
        metavar=("A", "B"),
        help="two models, each NAME or NAME,FIELD=VALUE,…, or "
        "modules, FILE.py:FUNCTION,NAME=INTEGER,…, or files of counts: locks, or JSON of --module",
    )
    add(
        "--convert", nargs="+", metavar="LETTER=N",
        help="convert the presets to MoH: s=16 r=8, router=linear for matrices",
    )  # fmt: skip
    add("--module", metavar="SPEC", help="your module: FILE.py:FUNCTION or package.module:FUNCTION")
    add("--audit", action="store_true", help="compare all counters on equivalent formulations of each layer")
    add("--published", help=argparse.SUPPRESS)
    add("--check", action="store_true", help="exit with code 1 if a verdict or a count is not as stated")
    add("--list", action="store_true", help="list tables, presets, counters, columns")


def add_rules(group: argparse._ArgumentGroup) -> None:
    """Add the rules of training FLOPs, and what their share of a peak needs."""
    group.add_argument(
        "--rules", nargs="+", metavar="NAME", choices=TRAINING,
        help=f"training FLOPs per token by two rules, entry by entry, or one for --columns: {', '.join(TRAINING)}",
    )  # fmt: skip
    group.add_argument("--tokens", type=COUNT, metavar="N", help="tokens of a training step (default: the input's)")
    group.add_argument("--seconds", type=POSITIVE, metavar="N", help="seconds of that step")
    group.add_argument("--devices", type=COUNT, metavar="N", help="devices that ran it (default: 1)")
    group.add_argument("--peak", metavar="PEAK", help="peak of a device: 'H100 SXM bf16', or FLOP/s: 989T")


def add_sizes(group: argparse._ArgumentGroup) -> None:
    """Add the options that change a preset: fields and lengths."""
    add = group.add_argument
    add("--set", nargs="+", action="extend", metavar="FIELD=VALUE", default=[], help="change fields of the presets")
    for name, what in LENGTHS.items():
        add(f"--{name.replace('_', '-')}", type=int, metavar="N", help=what)


def add_counters(group: argparse._ArgumentGroup) -> None:
    """Add the options that choose counters and their device."""
    add = group.add_argument
    counters = (CLOSED_FORM, *registry.CHOICES, "all")
    add("--counter", nargs="+", metavar="NAME", choices=counters, type=registry.canonical, help=", ".join(counters))
    add(
        "--device",
        choices=DEVICES,
        help="device for all counters (default: the device on which each counter was verified)",
    )


def add_modules(group: argparse._ArgumentGroup) -> None:
    """Add the options of a module: depth, and operators without a rule."""
    group.add_argument("--depth", type=COUNT, metavar="N", help="merge modules below depth N")
    for name, text in (("unsupported", "list unsupported operations, go on"), ("uncounted", argparse.SUPPRESS)):
        group.add_argument(f"--allow-{name}", dest="allow_unsupported", action="store_true", help=text)
    group.add_argument(
        "--formula", nargs="+", metavar="OPERATOR=EXPRESSION", default=[],
        help="MACs of an unknown operation in the sizes of its tensors: a0 is the first size of the first, b1 the "
        "second of the second, o0 that of the result; a, b, o alone are numbers of elements",
    )  # fmt: skip
    group.add_argument("--formula-set", choices=linalg.SETS, help=linalg.HELP)
    group.add_argument(
        "--elementwise", choices=("report", "include", "refuse"),
        help="contractions written elementwise and summed, (a * b).sum(-1): list them apart, count them too, or "
        "fail (default: report)",
    )  # fmt: skip


def add_memory(group: argparse._ArgumentGroup) -> None:
    """Add --columns and its assumptions."""
    add = group.add_argument
    add("--columns", nargs="+", metavar="NAME", default=[], help=", ".join(accounts.ACCOUNTS))
    add("--context", type=COUNT, metavar="N", help="stored tokens after a decode step (default: the input's length)")
    add("--generate", type=COUNT, metavar="N", help="tokens generated one by one (default: as many as the context)")
    add("--element-bytes", type=COUNT, metavar="N", help="bytes of an element (default: 2)")
    add("--window", type=COUNT, metavar="N", help="sliding window: keys of a query, its own included")
    add("--optimizer", choices=accounts.RECIPES, help="training state per parameter (default: adamw-mixed, 16 bytes)")
    add("--prices", metavar="FILE", help="TOML of FLOPs per element of other operations: softmax = 5")
    for dest, text in (
        ("peak_macs_per_s", "peak of the hardware in MACs/s"),
        ("bytes_per_s", "memory bandwidth in bytes/s"),
    ):
        add(accounts.OPTIONS[dest], dest=dest, type=POSITIVE, metavar="N", help=text)


def plan_options(group) -> None:
    """Add the options of a parallel plan."""
    add = group.add_argument
    add("--plan", metavar="PLAN", help=f"one rank of a preset under a parallel plan: {GRAMMAR}")
    add("--reduce-bytes", type=COUNT, metavar="N", help="bytes of an element of summed gradients (default: 2)")
