"""Options of bench.macs. A verb has some of them."""

import argparse

from headcount.bench import accounts, case
from headcount.bench.cli import Parser
from headcount.bench.contractions import linalg
from headcount.bench.counters import registry
from headcount.bench.isolated.target import add_ranks, add_target_options
from headcount.bench.macs import own
from headcount.bench.measure import CLOSED_FORM, DEVICES
from headcount.bench.output.arguments import COUNT, ELEMENT, Value
from headcount.formulas.conventions import TRAINING
from headcount.formulas.plan import GRAMMAR
from headcount.formulas.published import tables
from headcount.formulas.published.own import RULES
from headcount.models.configs.numbers import parse_float

MODEL = "preset, FILE.py:FUNCTION or :CLASS, package.module:FUNCTION, config.json, hf:NAME"
POSITIVE = Value("number above 0", parse_float, lambda number: number > 0)


class _Names(tuple[str, ...]):
    """Names of tables, and any file of a table."""

    def __contains__(self, text: object) -> bool:
        return super().__contains__(text) or own.is_file(str(text))


def add_options(out: Parser) -> None:
    """Add every option, in groups."""
    add = out.add_argument_group("what to count").add_argument
    add("--module", metavar="TARGET", help=MODEL)
    add(
        "--compare",
        nargs=2,
        metavar="TARGET",
        help="two of these, each with ,FIELD=VALUE,… behind it, or the lock or JSON of a count",
    )
    add(
        "--table", nargs="+", metavar="NAME", choices=_Names((*tables.names(), *tables.figure_names())), default=(),
        help="a name of headcount macs --list, or your FILE.toml or .csv (default: those of arXiv 2210.05144)",
    )  # fmt: skip
    add("--preset", nargs="+", metavar="NAME", help="models by name (see --list)")
    add("--grid", nargs="+", metavar="SPEC", help="'K=1,2 E=8 D=64 T=10,128', or a TOML file like it")
    add(
        "--convert", nargs="+", metavar="LETTER=N",
        help="convert the presets to MoH: s=16 r=8, router=linear for matrices",
    )  # fmt: skip
    add("--audit", action="store_true", help="compare all counters on equivalent formulations of each layer")
    add("--published", help=argparse.SUPPRESS)
    add("--list", action="store_true", help="list tables, presets, counters, columns")

    sizes = out.add_argument_group("sizes")
    add_target_options(sizes)
    sizes.add_argument("--src-len", type=int, metavar="N", help=case.LENGTHS["src_len"])

    add = out.add_argument_group("tables").add_argument
    add("--params", action="store_true", help="also the vocabularies that fit the printed parameters")
    others = ", ".join(rule for rule in RULES if rule not in TRAINING)
    text = f"in place of your file's: {others}, or a rule of headcount macs --rules"
    add("--rule", dest="own_rule", metavar="RULE", choices=RULES, help=text)
    add("--find-rule", action="store_true", help="list all rules by the number of rows of your file that they print")
    add("--trust", action="store_true", help="run code from outside of the folder of your file too")

    add = out.add_argument_group("how to count").add_argument
    add("--check", action="store_true", help="exit with code 1 if a verdict or a count is not as stated")
    add("--backward", action="store_true", help="count the gradients too")
    counters = (CLOSED_FORM, *registry.COUNTERS, "all")
    add("--counter", nargs="+", metavar="NAME", choices=counters, type=registry.canonical, help=", ".join(counters))
    add(
        "--device",
        choices=DEVICES,
        help="device for all counters (default: the device on which each counter was verified)",
    )
    add("--depth", type=COUNT, metavar="N", help="merge modules below depth N")
    for name, text in (("unsupported", "list unsupported operations, go on"), ("uncounted", argparse.SUPPRESS)):
        add(f"--allow-{name}", dest="allow_unsupported", action="store_true", help=text)
    add(
        "--formula", nargs="+", metavar="OPERATOR=EXPRESSION", default=[],
        help="MACs of an unknown operation in the sizes of its tensors: a0 is the first size of the first, b1 the "
        "second of the second, o0 that of the result; a, b, o alone are numbers of elements",
    )  # fmt: skip
    add("--formula-set", choices=linalg.SETS, help=linalg.HELP)
    add(
        "--elementwise", choices=("report", "include", "refuse"),
        help="contractions written elementwise and summed, (a * b).sum(-1): list them apart, count them too, or "
        "fail (default: report)",
    )  # fmt: skip
    add("--plot", metavar="FILE", help="draw the share of MACs by module: .pdf, .svg or .png")

    add = out.add_argument_group("memory and decoding").add_argument
    add("--decode", action="store_true", help="add one decode step: its MACs and bytes")
    few = "kv_bytes, decode_macs, decode_bytes, causal_macs, training_macs"
    add("--columns", nargs="+", metavar="NAME", default=[], help=f"{few} and others: headcount table --list")
    add("--context", type=COUNT, metavar="N", help="stored tokens after a decode step (default: the input's length)")
    add(
        "--generate",
        type=COUNT,
        metavar="N",
        help="tokens generated one by one, after those of --context (default: as many as the context, after none)",
    )
    for name, what in (
        ("element", "an element, or its type, as fp32 (default: 2)"),
        ("weight", "a weight, or its type, as int4 (default: --element-bytes)"),
        ("cache", "a stored key or value, or its type, as fp8 (default: --element-bytes)"),
    ):
        add(f"--{name}-bytes", type=ELEMENT, metavar="N", help=f"bytes of {what}")
    add("--window", type=COUNT, metavar="N", help="sliding window: keys of a query, its own included")
    add("--optimizer", choices=accounts.RECIPES, help="training state per parameter (default: adamw-mixed, 16 bytes)")
    add("--prices", metavar="FILE", help="TOML of FLOPs per element of other operations: softmax = 5")
    for dest, text in (
        ("peak_macs_per_s", "peak of the hardware in MACs/s: 494.5T"),
        ("bytes_per_s", "memory bandwidth in bytes/s: 3.35T"),
    ):
        add(accounts.OPTIONS[dest], dest=dest, type=POSITIVE, metavar="N", help=text)

    add = out.add_argument_group("training").add_argument
    add(
        "--rules", nargs="+", metavar="NAME", choices=TRAINING,
        help=f"training FLOPs per token by two rules, entry by entry, or one for --columns: {', '.join(TRAINING)}",
    )  # fmt: skip
    add("--tokens", type=COUNT, metavar="N", help="tokens of a training step (default: the input's)")
    add("--seconds", type=POSITIVE, metavar="N", help="seconds of that step")
    add("--devices", type=COUNT, metavar="N", help="devices that ran it (default: 1)")
    add("--peak", metavar="PEAK", help="peak of a device: 'H100 SXM bf16', or FLOP/s: 989T")

    devices = out.add_argument_group("one rank of many devices")
    devices.add_argument(
        "--plan", nargs="+", metavar="AXIS=N|fsdp",
        help=f"one rank of a preset under a parallel plan: {GRAMMAR}; a comparison takes one or two",
    )  # fmt: skip
    devices.add_argument(
        "--reduce-bytes", type=COUNT, metavar="N", help="bytes of an element of summed gradients (default: 2)"
    )
    add_ranks(devices)

    # a list that options extend
    out.set_defaults(set=[])
