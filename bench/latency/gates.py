"""Check every implementation of some layers against the float64 reference. Nothing is timed.

Each runs forward and with all gradients, on short, odd and longer sequences, on a single token, and with every token
routed to one expert. On a GPU, memory that was never written holds NaN, a captured graph is replayed on other inputs,
and a second run must give the same bits.
"""

import argparse
from collections.abc import Callable, Iterable, Sequence

from headcount.bench.cli import Parser, add_output
from headcount.bench.latency import schedule
from headcount.bench.latency.timing_cases import TimingCase
from headcount.bench.result import Result

LAYERS = ("moa-8K8E128D", "moa-16K32E256D", "moa-8K32E128D", "moh-32x64-50", "moh-llama3-50", "mha-base")
SHAPES = ((129, 2, "balanced"), (512, 2, "balanced"), (1, 1, "balanced"), (10, 4, "one-expert"))
"""Tokens of a sequence, sequences, routing."""
DTYPES = {"cpu": ("float32",), "cuda": ("bfloat16", "float32")}


def parser(prog: str) -> argparse.ArgumentParser:
    """Return the command line of bench.latency gates."""
    out = Parser(prog=prog, description=__doc__)
    out.add_argument("--layer", nargs="+", metavar="NAME", default=list(LAYERS), help=f"(default: {', '.join(LAYERS)})")
    schedule.add_options(out, "--device", "--json")
    defaults = "; ".join(f"{' '.join(dtypes)} on {device}" for device, dtypes in DTYPES.items())
    schedule.add_options(out, "--dtype", nargs="+", help=f"(default: {defaults})")
    add_output(out)
    return out


def command(args: argparse.Namespace, argv: Sequence[str] = ()) -> Result | Callable[[], int]:
    """Return the checks, of each implementation of each case, or what to run instead of this process."""
    return schedule.plan_cases(args, argv, lambda: [check_cases(args.layer, args.device, args.dtype)])


def check_cases(names: Sequence[str], device: str, dtypes: Iterable[str] | None = None) -> list[TimingCase]:
    """Return the cases to check by dtype, shape, pass and layer, each timed in 0 blocks."""
    return [
        TimingCase("layer", name, seq_len, batch_size, dtype, which, device, routing, blocks=0)
        for dtype in dtypes or DTYPES[device]
        for seq_len, batch_size, routing in SHAPES
        for which in ("forward", "both")
        for name in names
    ]
