"""Groups of options that several commands have, and the functions that read their values."""

import argparse
from collections.abc import Sequence
from dataclasses import fields

from headcount.bench.accounts import ACCOUNTS, OPTIONS, RECIPES, Assumptions, read_prices
from headcount.bench.card_times import TIMES
from headcount.bench.case import LENGTHS
from headcount.bench.cli import COUNT, ELEMENT, NameList, Value
from headcount.bench.counters import registry
from headcount.bench.counting.count import CLOSED_FORM, DEVICES, check_device, parse_counters
from headcount.bench.errors import UsageError, flag, require_package
from headcount.bench.hardware import find_card, parse_peak
from headcount.bench.output.layout import AUTO
from headcount.bench.performance.plan_time import DTYPE
from headcount.formulas.conventions import TRAINING
from headcount.models.configs.numbers import parse_float

POSITIVE = Value("number above 0", parse_float, lambda number: number > 0)
MODEL = "preset, FILE.py:NAME, config.json, hf:NAME, moa:K=8,…"
"""Help of a TARGET."""
ASSUMPTIONS = [field.name for field in fields(Assumptions) if field.name not in ("rule", "card", "has_run_types")]
"""Assumptions that have an option of their name; ``rule`` is the one of --rules, ``card`` that of --on."""


def counter_options(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add the counters, their device, and --check, and return their group."""
    group = parser.add_argument_group("how to count")
    add = group.add_argument
    counters = (CLOSED_FORM, *registry.COUNTERS, "all")
    add("--counter", action=NameList, metavar="NAME", choices=counters, help=", ".join(counters))
    add("--device", choices=DEVICES, help="(default: each counter's own)")
    add("--check", action="store_true", help="exit with 1 if a verdict or a count is not as stated")
    return group


def counters_of(args: argparse.Namespace, default: Sequence[str] | None = None) -> list[str]:
    """Return the counters of ``args``, else those of ``default``, else all that are installed.

    Raises EnvironmentMissing for those and for a device that are not there.
    """
    counters = parse_counters(args.counter or default)
    if counters:
        require_package("torch")
        check_device(args.device)
    return counters


def column_options(parser: argparse.ArgumentParser) -> None:
    """Add --columns and the options of their assumptions, each stored under the name of its assumption."""
    add = parser.add_argument_group("further columns, and what they assume").add_argument
    add("--columns", action=NameList, metavar="NAME", help="kv_bytes, decode_macs, …: headcount table --list")
    add("--context", type=COUNT, metavar="N", help="tokens stored after a decode step")
    add("--generate", type=COUNT, metavar="N", help="tokens generated one by one (default: --context)")
    add("--element-bytes", type=ELEMENT, metavar="N", help="bytes of an element, or its type: fp32 (default: 2)")
    add("--weight-bytes", type=ELEMENT, metavar="N", help="of a weight: int4 (default: --element-bytes)")
    add("--cache-bytes", type=ELEMENT, metavar="N", help="of a key or value: fp8 (default: --element-bytes)")
    add("--window", type=COUNT, metavar="N", help="sliding window: keys of a query, its own included")
    add("--optimizer", metavar="NAME", choices=RECIPES, help=", ".join(RECIPES))
    add("--prices", metavar="FILE", help="file with FLOPs per element of softmax, norms, …")
    peaks = {"peak_macs_per_s": "peak of the hardware in MACs/s: 494.5T", "bytes_per_s": "memory bandwidth: 3.35T"}
    for name, text in peaks.items():
        add(OPTIONS[name], dest=name, type=POSITIVE, metavar="N", help=text)
    rules = "training FLOPs by 6n, palm, …: headcount table --list"
    add("--rules", action=NameList, metavar="NAME", choices=TRAINING, help=rules)
    add("--tokens", type=COUNT, metavar="N", help="tokens of a training step (default: the input's)")
    add("--seconds", type=POSITIVE, metavar="N", help="seconds of that step")
    add("--devices", type=COUNT, metavar="N", help="devices that ran it (default: 1)")
    add("--on", metavar="CARD", help="expected times on a card: 'H100 SXM'")
    add("--peak", metavar="PEAK", help="of a device: 'H100 SXM bf16', or FLOP/s: 989T")


def assumptions_of(args: argparse.Namespace, has_times: bool = False) -> Assumptions:
    """Return the assumptions of --columns, and of times by --on where the command ``has_times``.

    Raises UsageError for an option that nothing here takes.
    """
    values = {name: value for name in ASSUMPTIONS if (value := getattr(args, name)) is not None}
    if args.rules:
        values["rule"] = args.rules[0]
    if args.on:
        values["card"] = find_card(args.on)
    if values and not args.columns and not (has_times and args.on):
        raise UsageError(f"{', '.join(OPTIONS.get(name, flag(name)) for name in values)}: give --columns that use it")
    if len(args.rules or ()) > 1:
        raise UsageError(
            f"--columns take one of --rules, not {', '.join(args.rules)}; headcount compare TARGET --rules "
            f"{' '.join(args.rules)} takes several"
        )
    if args.prices:
        values["prices"] = read_prices(args.prices)
    needs = {need for name in args.columns if name in ACCOUNTS for need in ACCOUNTS[name].needs}
    # a card that times are expected on has its peaks too
    if args.on and "bytes_per_s" in needs:
        card = values["card"]
        card.check(DTYPE)
        values = {"peak_macs_per_s": card.macs_per_s[DTYPE], "bytes_per_s": card.bytes_per_s, **values}
    if peak := args.peak or "peak" in needs and args.on:
        values["peak"] = parse_peak(peak)
    return Assumptions(**values)


def add_times(args: argparse.Namespace, default: Sequence[str] = ()) -> None:
    """Add the expected time of a forward pass to --columns, or to ``default``, where --on asks for times and no column
    has one."""
    if args.on and not {*args.columns} & {*TIMES}:
        args.columns = [*(args.columns or default), "forward_ms"]


def length_options(group: argparse._ActionsContainer) -> None:
    """Add the input lengths of a preset."""
    for name, what in LENGTHS.items():
        group.add_argument(flag(name), type=int, metavar="N", help=what)


def lengths_of(args: argparse.Namespace) -> dict[str, int | None]:
    """Return the input lengths of a preset; None where an option is not given."""
    return {name: getattr(args, name) for name in LENGTHS}


def refuse(args: argparse.Namespace, names: Sequence[str], what: str) -> None:
    """Raise UsageError for the first option of these names that is given: it does not go with ``what``."""
    for name in names:
        if getattr(args, name) not in (None, False, [], AUTO):
            # --rules sets the assumption called rule
            option = OPTIONS.get(name, flag(name)) if name in ASSUMPTIONS else flag(name)
            raise UsageError(f"{option} does not go with {what}")
