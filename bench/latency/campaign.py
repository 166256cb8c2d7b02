"""Measure on a GPU everything that the documents need, most valuable first, in one command.

Timing cases (bench/latency/gpu_cases.toml), each checked before it is timed, then the checks of ``gates``.
No case begins that would not finish in time if it took as long as the longest so far. Each finished case is appended
to DIR/latency.jsonl; a later run with the same DIR skips what that file holds. The last lines name the missing cases.
With TRITON_CACHE_DIR=build/kernels, a folder that `make kernels` fills on any machine, no Triton kernel is compiled.
"""

import argparse
from collections.abc import Callable, Sequence

from headcount.bench.cli import Parser, Work, add_output
from headcount.bench.latency import gates, schedule
from headcount.bench.latency.timing_cases import TimingCase

PROG = "python -m bench.latency campaign"


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """Return the command line of bench.latency campaign."""
    out = Parser(prog=prog, description=__doc__)
    schedule.add_options(out, "--within", "--commit", "--blocks")
    schedule.add_options(out, "--out-dir", required=True, help="folder of latency.jsonl and env.json")
    schedule.add_options(out, "--device", default="cuda")
    dtypes = ("bfloat16", "float16", "float32")
    schedule.add_options(out, "--dtype", choices=dtypes, default="bfloat16", help="(default: %(default)s)")
    schedule.add_options(
        out, "--tokens", default=schedule.TOKENS["cuda"], help="tokens of a call (default: %(default)s)"
    )
    add_output(out)
    return out


def plan(args: argparse.Namespace, argv: Sequence[str] = ()) -> Work | Callable[[], int]:
    """Return the sections of a campaign; each begins when the one before it has been printed."""

    def cases() -> list[list[TimingCase]]:
        checks = gates.check_cases(gates.LAYERS, args.device, dict.fromkeys((args.dtype, *gates.DTYPES[args.device])))
        return [schedule.campaign_cases(args.device, args.dtype, args.tokens), checks]

    return schedule.plan_cases(args, ["campaign"], argv, cases)
