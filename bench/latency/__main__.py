"""Time layers and models, with exact MACs and the roofline bound of the hardware.

    python -m bench.latency --quick
    python -m bench.latency --layer moa-8K8E128D --seq-len 128 512
    python -m bench.latency --model moa-8K8E128D --pass both
    python -m bench.latency --device cuda --record
    python -m bench.latency --within 300 --out-dir DIR
    python -m bench.latency --estimate --on "H100 SXM"  arithmetic, no measurement
    python -m bench.latency --estimate config.json --seq-len 4096 --on "H100 SXM"
    python -m bench.latency campaign --out-dir DIR      all GPU measurements of the report
    python -m bench.latency gates --device cuda         check without timing
    python -m bench.latency compare OLD.jsonl NEW.jsonl
    python -m bench.latency efficiencies --check        the constants of expected times, fitted again
    python -m bench.latency model.py:make config.json --seq-len 128
    torchrun --nproc-per-node 4 -m bench.latency llama3-8b --plan tp=4,sp

Each implementation is checked against the float64 reference before it is timed. The implementations of a case run
interleaved; an A/A control, the same code timed twice, gives the noise floor. Below 20 blocks a table is a smoke test.
An implementation that fails is a row with the reason; where it leaves the device unusable and records are stored, the
run continues in a new process. TARGET --help has the options of a TARGET. Exit codes: 0 fine; 1 an implementation was
wrong or failed; 2 wrong usage; 3 no such device.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Annotated

from headcount.bench.cli import Parser, add_output, serve, start
from headcount.bench.errors import UsageError

PROG = "python -m bench.latency"
if __name__ == "__main__":
    start(PROG, "headcount.bench.latency.__main__", "torch")

from headcount.bench.accounts import Assumptions
from headcount.bench.card_times import DECODE, FORWARD, PREFILL, TRAINING
from headcount.bench.closed_form.times import time_table
from headcount.bench.column import plural
from headcount.bench.hardware import HARDWARE, find_card
from headcount.bench.latency import estimate, implementations, schedule, targets
from headcount.bench.latency.timing_cases import ROUTINGS, TimingCase, layer_cases, model_cases
from headcount.bench.performance.plan_time import DTYPE
from headcount.bench.result import Result, Table
from headcount.bench.targets.target import LENGTHS, parse_target
from headcount.formulas.plan import parse as parse_plan
from headcount.models.configs import layers
from headcount.models.configs.targets import has_closed_form, is_layer, read, split

SEQ_LENS = {"cpu": (10, 128, 512), "cuda": (10, 128, 512, 2048, 8192)}
QUICK = {"layer": ["mha-base", "moa-8K8E128D"], "seq_len": [128], "blocks": 5, "passes": ["forward"], "tokens": 512}
PASSES = {"forward": (PREFILL, FORWARD), "both": (TRAINING,), "decode": (DECODE,)}
"""The times of a whole model by pass."""
CARD = "H200 SXM"
"""The card of an estimate by default: the measured one."""
SUBCOMMANDS = ("compare", "gates", "campaign", "ranks", "efficiencies")
"""Commands with their own command line, in ``bench/latency/<name>.py``."""


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """Return the command line of bench.latency."""
    out = Parser(prog=prog, description=(__doc__ or "").replace(PROG, prog))
    out.add_argument("target", nargs="*", metavar="TARGET", help="with --estimate: PRESET, moa:K=8,T=512, config.json")
    out.add_argument("--layer", nargs="+", metavar="NAME", help="layers of --list (default: all)")
    out.add_argument("--model", nargs="+", metavar="NAME", help="a preset, or all")
    known = dict.fromkeys(name for names in implementations.impls_by_variant().values() for name in names)
    out.add_argument("--implementation", nargs="+", metavar="NAME", dest="impl", help=f"{', '.join(known)}")
    out.add_argument("--seq-len", nargs="+", type=int, metavar="T")
    shape = out.add_mutually_exclusive_group()
    schedule.add_options(shape, "--tokens")
    shape.add_argument("--batch-size", type=int, metavar="N")
    schedule.add_options(out, "--dtype")
    passes = f"{', '.join(PASSES)} (default: forward both)"
    out.add_argument("--pass", nargs="+", choices=PASSES, dest="passes", metavar="PASS", help=passes)
    schedule.add_options(out, "--device", default=None, help="(default: cpu)")
    out.add_argument("--routing", nargs="+", choices=ROUTINGS, default=["balanced"], help="(default: balanced)")
    schedule.add_options(out, "--threads", "--within", "--commit")
    schedule.add_options(out, "--blocks", default=None)
    out.add_argument("--quick", action="store_true", help="two layers, one length, five blocks")
    out.add_argument("--estimate", action="store_true", help="print least and expected times, and measure nothing")
    out.add_argument("--on", metavar="CARD", help="card of --estimate, of --list (default: H200 SXM)")
    out.add_argument("--plan", metavar="PLAN", help="with --estimate: all ranks of TARGET under tp=8,sp")
    store = out.add_mutually_exclusive_group()
    schedule.add_options(store, "--json", "--out-dir")
    store.add_argument("--record", action="store_true", help="the same in a file under reports/records")
    out.add_argument("--list", action="store_true", help="list what can be timed")
    add_output(out)
    return out


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run the command under the name ``prog`` and return its exit code."""
    from importlib import import_module

    replace_jaxtyping()
    argv = list(sys.argv[1:] if argv is None else argv)
    has_plan = any(word.partition("=")[0] == "--plan" for word in argv)
    if has_plan and argv[0] != "ranks" and "--estimate" not in argv:
        argv = ["ranks", *argv]
    if argv[:1] and argv[0] in SUBCOMMANDS:
        name = f"{prog} {argv[0]}"
        other = import_module(f"headcount.bench.latency.{argv[0]}")
        return serve(name, other.parser(name), lambda args: other.command(args, argv), argv[1:])
    if _has_target(prog, argv):
        return serve(prog, targets.parser(prog), targets.command, argv)
    return serve(prog, parser(prog), lambda args: command(args, argv), argv)


def _has_target(prog: str, argv: Sequence[str]) -> bool:
    """Return whether ``argv`` names a target to time: a word that is no value of an option, without one of layers."""
    if "--estimate" in argv:
        return False
    if not argv or not argv[0].startswith("-"):
        return bool(argv)
    if {"-h", "--help"} & {*argv}:
        return False
    try:
        return any(not target.isdecimal() for target in targets.parser(prog).parse_args(argv).target)
    except UsageError:
        return False


def replace_jaxtyping() -> None:
    """Provide empty annotations where jaxtyping is not installed: a borrowed GPU machine has torch alone."""
    try:
        import jaxtyping
    except ImportError:
        jaxtyping = sys.modules["jaxtyping"] = ModuleType("jaxtyping")
        jaxtyping.Float = jaxtyping.Int = jaxtyping.Bool = Annotated


def command(args: argparse.Namespace, argv: Sequence[str] = ()) -> Result | str | Callable[[], int]:
    """Return the requested cases, measured as they are printed; ``argv`` is recorded with them."""
    if args.list:
        return _list_names()
    if args.estimate:
        return _estimate(args)
    if args.target:
        raise UsageError(
            f"a TARGET goes with --estimate here; headcount latency {args.target[0]} --help has its options"
        )
    if args.on:
        raise UsageError("--on names the card of --estimate; without it this machine is measured")
    args.device = args.device or "cpu"
    set_defaults(args)
    return schedule.plan_cases(args, argv, lambda: [_make_cases(args)])


def _estimate(args: argparse.Namespace) -> Result:
    """Return the estimates of implementations, and the times of whole models that have none or that a plan divides."""
    if args.device:
        raise UsageError(f"--estimate is of a card that is not here: --on CARD names it, not --device {args.device}")
    whole = [text for text in args.target if args.plan or not has_closed_form(split(text)[0])]
    if args.plan and not whole:
        raise UsageError("--plan divides a TARGET: headcount latency --estimate llama3-8b --plan tp=8,sp")
    tables: list[Table] = [table for text in whole for table in _times(args, text)]
    if whole and len(whole) == len(args.target):
        return Result(tables, lambda: f"{plural(len(tables), 'table')} of times estimated; nothing was measured.")
    args.target = [text for text in args.target if text not in whole]
    args.device = "cuda"
    set_defaults(args)
    schedule.check_limits(args)
    hardware = find_card(args.on or CARD, args.dtype)
    table = estimate.table(_target_cases(args) if args.target else _make_cases(args), hardware)
    return Result([table, *tables], lambda: estimate.sentence(table.rows))


def _times(args: argparse.Namespace, text: str) -> Iterator[Table]:
    """Yield the times of a model at each length, as count and fit have them.

    Raises UsageError for options of layers and presets.
    """
    refused = {"--implementation": args.impl, "--tokens": args.tokens, "--quick": args.quick}
    if given := [name for name, value in refused.items() if value]:
        raise UsageError(f"{text}: {given[0]} is of layers and presets without a plan")
    if args.dtype not in (None, DTYPE):
        raise UsageError(f"{text}: its times are in {DTYPE}, not in {args.dtype}")
    passes = [time for name in args.passes or () for time in PASSES[name]]
    plan, card = parse_plan(args.plan) if args.plan else None, find_card(args.on or CARD)
    for length in args.seq_len or [None]:
        lengths = {**dict.fromkeys(LENGTHS), "seq_len": length, "batch_size": args.batch_size}
        target = parse_target(text, argparse.Namespace(set=[], input=[], **lengths))
        table = time_table(target, card, Assumptions(), plan=plan, passes=passes)
        yield replace(table, title=f"{target.name}: {table.title}")


def set_defaults(args: argparse.Namespace) -> None:
    """Set the defaults that depend on other options."""
    if args.quick:
        for name, value in QUICK.items():
            if not getattr(args, name) and not (name == "layer" and args.model):
                setattr(args, name, value)
    args.dtype = args.dtype or schedule.DTYPE[args.device]
    args.passes = args.passes or ["forward", "both"]
    args.blocks = schedule.BLOCKS if args.blocks is None else args.blocks


def _make_cases(args: argparse.Namespace) -> list[TimingCase]:
    """Return the cases of --layer and --model, of as many sequences as have about --tokens tokens by default."""
    names, models = args.layer or [], args.model or []
    if names == ["all"] or not (names or models):
        names = list(layers.LAYERS)
    if models == ["all"]:
        models = implementations.timed_models()
    tokens = args.tokens or schedule.TOKENS[args.device]
    how = {"dtype": args.dtype, "device": args.device, "requested": tuple(args.impl) if args.impl else None}
    found = [*layer_cases(names, args.seq_len or SEQ_LENS[args.device], args.passes, args.routing, **how)]
    found += model_cases(models, args.seq_len, args.passes, **how)
    return [replace(case, batch_size=args.batch_size or max(1, tokens // case.seq_len)) for case in found]


def _target_cases(args: argparse.Namespace) -> list[TimingCase]:
    """Return the cases of layers by letters and of presets, each at the lengths that its TARGET or options state.

    The batch is of one sequence by default, as that of a count.
    """
    found = []
    for text in args.target:
        spec, _, lengths = read(text)
        own = {"layer": None, "model": None, "tokens": args.tokens or 1, **lengths}
        own["layer" if is_layer(spec) else "model"] = [text]
        if "seq_len" in lengths:
            own["seq_len"] = [lengths["seq_len"]]
        found += _make_cases(argparse.Namespace(**vars(args) | own))
    return found


def _list_names() -> str:
    return "\n".join(
        [
            "layers           " + ", ".join(layers.LAYERS),
            "models           " + ", ".join(implementations.timed_models()),
            *(f"implementations  {name}: {', '.join(how)}" for name, how in implementations.impls_by_variant().items()),
            "routings         " + ", ".join(ROUTINGS),
            "passes           " + ", ".join(PASSES),
            "dtypes           " + ", ".join(schedule.OPTIONS["--dtype"]["choices"]),
            "cards            " + ", ".join(f"{name}: {found.name}" for name, found in HARDWARE.items()),
        ]
    )
