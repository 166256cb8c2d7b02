"""Plan a run: the options that commands share with their limits, and what one process or several measure."""

import argparse
import math
import os
import sys
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from headcount.bench import records
from headcount.bench.counting.count import check_device
from headcount.bench.errors import UsageError
from headcount.bench.latency.timing_cases import ELEMENT_BYTES, TimingCase
from headcount.bench.result import Result
from headcount.bench.targets import watched
from headcount.bench.targets.target import full_dtype

TOKENS = {"cpu": 1024, "cuda": 16384}
"""Tokens of a call by default."""
BLOCKS = 20
DTYPE = {"cpu": "float32", "cuda": "bfloat16"}
"""The dtype that a device times by default."""
OPTIONS: dict[str, dict[str, Any]] = {
    "--device": dict(choices=("cpu", "cuda"), default="cpu", help="(default: %(default)s)"),
    "--dtype": dict(type=full_dtype, choices=tuple(ELEMENT_BYTES), help="(default: float32 on cpu, bfloat16 on cuda)"),
    "--tokens": dict(type=int, metavar="N", help="tokens of a call: the batch size is N / T, at least 1"),
    "--blocks": dict(
        type=int, metavar="N", default=BLOCKS, help=f"repetitions, fewer are a smoke test (default: {BLOCKS})"
    ),
    "--threads": dict(type=int, metavar="N", help="CPU threads of torch (default: torch's own)"),
    "--within": dict(type=float, metavar="SECONDS", help="skip cases that would end after it (default: none)"),
    "--json": dict(metavar="PATH", help="append records there; cases that it holds are not run again"),
    "--out-dir": dict(metavar="DIR", help="the same in DIR/latency.jsonl, with DIR/env.json"),
    "--commit": dict(metavar="SHA", help="commit to record where there is no repository"),
}
"""Options that several commands have."""
MOST, MOST_BLOCKS = 2**31 - 1, 10_000
"""Largest length or batch, and most blocks."""


def in_worker(device: str, argv: Sequence[str]) -> Callable[[], int] | None:
    """Return a function that runs this program in worker processes; None in a worker, where none is needed, and where
    another program calls this one with ``argv``."""
    program = sys.orig_argv[-len(argv) :] == list(argv)
    if device != "cuda" or not program or watched.worker() or not hasattr(os, "killpg"):
        return None
    return lambda: watched.run_watched([sys.executable, *sys.orig_argv[1:]])


def add_options(parser: argparse._ActionsContainer, *names: str, **changes: Any) -> None:
    """Add options of OPTIONS, with ``changes``."""
    for name in names:
        parser.add_argument(name, **OPTIONS[name] | changes)


def prepare(args: argparse.Namespace) -> None:
    """Check the limits of options and the device."""
    check_limits(args)
    check_device(args.device, ["cpu"])


def plan_cases(
    args: argparse.Namespace, argv: Sequence[str], make: Callable[[], list[list[TimingCase]]]
) -> Result | Callable[[], int]:
    """Return a table for each list of cases, measured as it is printed, or what to run instead of this process.

    ``argv`` is recorded. ``make`` is called where this process measures.
    """
    defaults = {"out_dir": None, "record": False, "json": None, "within": None, "blocks": BLOCKS}
    args = argparse.Namespace(**defaults | {"commit": None, "threads": None} | vars(args))
    check_limits(args)
    if (args.out_dir or args.json or args.record) and (watch := in_worker(args.device, argv)):
        return watch
    check_device(args.device, ["cpu"])
    if args.threads:
        import torch

        torch.set_num_threads(args.threads)
    parts = make()
    for case in chain(*parts):
        # unknown names are reported before the first case runs
        case.impls()
    from headcount.bench.latency.session import TimingSession, environment_of

    environ = environment_of(args, argv)
    path = Path(args.out_dir) / "latency.jsonl" if args.out_dir else args.json and Path(args.json)
    if args.record:
        path = records.place(records.writable(), environ["device"], environ["time"][:10], environ["commit"])
    session = TimingSession(path, environ, args.blocks, args.within)
    return Result(list(map(session.make_table, parts)), session.sentence, remark=lambda: session.remark)


def check_limits(args: argparse.Namespace) -> None:
    """Raise UsageError for the first option that is below 1 or above its limit."""
    most = {"tokens": MOST, "batch_size": MOST, "blocks": MOST_BLOCKS, "threads": os.cpu_count() or 1}
    for name, bound in (most | {"within": math.inf, "seq_len": MOST}).items():
        given = getattr(args, name, None)
        for value in given if isinstance(given, list) else [given]:
            if value is not None and not 1 <= value <= bound:
                wanted = f"at most {bound:,}" if value > bound else "at least 1"
                raise UsageError(f"--{name.replace('_', '-')} must be {wanted}, not {value}")
