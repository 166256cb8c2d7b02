"""Measure on a GPU everything that the documents need, most valuable first, in one command.

In this order: environment, correctness checks of the first layers, timing cases (bench/latency/gpu_cases.toml), and the
checks that are left.
No case begins that would not finish in time. Each finished case is appended to DIR/latency.jsonl; a later run with the
same DIR skips what that file holds. The last lines name the missing cases.
With TRITON_CACHE_DIR=build/kernels, a folder that `make kernels` fills on any machine, no Triton kernel is compiled.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from headcount.bench.cli import Parser, Work, add_output
from headcount.bench.latency import gates, schedule, table
from headcount.bench.measure import check_device

PROG = "python -m bench.latency campaign"
BLOCKS = 20


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """Return the command line of bench.latency campaign."""
    out = Parser(prog=prog, description=__doc__)
    out.add_argument("--within", type=float, metavar="SECONDS", help="time limit (default: none)")
    out.add_argument("--out-dir", metavar="DIR", required=True, help="folder of latency.jsonl and env.json")
    out.add_argument("--commit", metavar="SHA", help="commit to record where there is no repository")
    out.add_argument("--device", choices=("cpu", "cuda"), default="cuda", help="(default: cuda)")
    out.add_argument(
        "--dtype", choices=("bfloat16", "float16", "float32"), default="bfloat16", help="(default: bfloat16)"
    )
    out.add_argument(
        "--tokens",
        type=int,
        metavar="N",
        default=schedule.TOKENS,
        help=f"tokens of a call (default: {schedule.TOKENS})",
    )
    out.add_argument("--blocks", type=int, metavar="N", default=BLOCKS, help=f"blocks of a case (default: {BLOCKS})")
    add_output(out)
    return out


def plan(args: argparse.Namespace, argv: Sequence[str] = ()) -> Work | Callable[[], int]:
    """Return the sections of a campaign; each begins when the one before it has been printed."""
    schedule.check_limits(args)
    if watch := schedule.in_worker(args.device, argv):
        return watch
    check_device(args.device, ["cpu"])
    from headcount.bench.latency.session import LATENCY_FILE, CheckSession, TimingSession, environment_of

    environ = environment_of(args, ["campaign", *argv])
    path = Path(args.out_dir) / LATENCY_FILE
    checks, session = CheckSession(path, args.within), TimingSession(path, environ, args.blocks, args.within)
    cases = schedule.campaign_cases(args.device, args.dtype, args.tokens)
    first = gates.check_cases(gates.FIRST_LAYERS, args.device, [args.dtype], gates.FIRST_SHAPES)
    others = [case for case in gates.check_cases(gates.LAYERS, args.device) if case not in first]
    sections = [checks.section(first), session.section(cases), checks.section(others)]
    remark = f", records in {path}"
    return Work(sections, remark=lambda: remark + session.remark() + checks.remark(), result=table.result)
