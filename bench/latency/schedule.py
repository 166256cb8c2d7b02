"""Plan a run: options and their limits, stored cases, and the cases of a GPU campaign, most valuable first."""

import argparse
import functools
import math
import os
import sys
import tomllib
from collections.abc import Callable, Sequence
from itertools import chain, product
from pathlib import Path
from typing import Any

from headcount.bench import records
from headcount.bench.counting.count import check_device
from headcount.bench.errors import UsageError
from headcount.bench.hardware import HARDWARE
from headcount.bench.latency.timing_cases import ELEMENT_BYTES, TimingCase
from headcount.bench.result import Result
from headcount.bench.targets import watched
from headcount.models.configs.presets import preset

TOKENS = {"cpu": 1024, "cuda": 16384}
"""Tokens of a call by default."""
BLOCKS = 20
DTYPE = {"cpu": "float32", "cuda": "bfloat16"}
"""The dtype that a device times by default."""
OPTIONS: dict[str, dict[str, Any]] = {
    "--device": dict(choices=("cpu", "cuda"), default="cpu", help="(default: %(default)s)"),
    "--dtype": dict(choices=tuple(ELEMENT_BYTES), help="(default: float32 on cpu, bfloat16 on cuda)"),
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


@functools.cache
def read_parts() -> dict[str, dict[str, Any]]:
    """Return the parts of gpu_cases.toml by name, in their order."""
    return tomllib.loads(Path(__file__).with_name("gpu_cases.toml").read_text(encoding="utf-8"))


def part_cases(
    part: str, device: str = "cuda", dtype: str = "bfloat16", tokens: int | None = None
) -> dict[TimingCase, float]:
    """Return the timing cases of a part of gpu_cases.toml, each with the seconds that it is expected to take.

    ``tokens`` of a call replace those of the part; a longer sequence is cut, but for a model of a fixed length.
    """
    found = {}
    values = read_parts()[part]
    subject, most, without = values["subject"], tokens or values["tokens"], tuple(values.get("without", ()))
    for row in values["cases"]:
        requested = tuple(row["implementation"]) if "implementation" in row else None
        routings = row.get("routing", ["natural" if subject == "model" else "balanced"])
        for name, seq_len, which, routing in product(row["name"], row["seq_len"], row["pass"], routings):
            has_fixed_length = subject == "model" and set(preset(name).lengths) == {"batch_size"}
            length = seq_len if has_fixed_length else min(seq_len, most)
            shape = length, max(1, most // length), dtype, which, device, routing
            case = TimingCase(subject, name, *shape, requested, blocks=row.get("blocks"), without=without)
            found[case] = row["seconds"]
    return found


def timed_parts() -> dict[str, dict[str, Any]]:
    """Return the parts of a campaign that are timed; the other one checks."""
    return {name: part for name, part in read_parts().items() if "cases" in part}


def campaign_cases(device: str = "cuda", dtype: str = "bfloat16", tokens: int | None = None) -> list[TimingCase]:
    """Return the timing cases of every part of gpu_cases.toml."""
    return [case for part in timed_parts() for case in part_cases(part, device, dtype, tokens)]


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
    defaults = {"out_dir": None, "record": False, "json": None, "within": None, "hardware": None, "blocks": BLOCKS}
    args = argparse.Namespace(**defaults | {"commit": None} | vars(args))
    check_limits(args)
    if (args.out_dir or args.json or args.record) and (watch := in_worker(args.device, argv)):
        return watch
    check_device(args.device, ["cpu"])
    parts = make()
    for case in chain(*parts):
        # unknown names are reported before the first case runs
        case.impls()
    from headcount.bench.latency.session import TimingSession, environment_of

    environ = environment_of(args, argv)
    path = Path(args.out_dir) / "latency.jsonl" if args.out_dir else args.json and Path(args.json)
    if args.record:
        path = records.place(records.writable(), environ["device"], environ["time"][:10], environ["commit"])
    session = TimingSession(path, environ, args.blocks, args.within, HARDWARE.get(args.hardware))
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
