"""Measure on a GPU what the documents need, in one command or in parts.

    python -m bench.latency campaign --out-dir DIR --part models --within 300

Cases of models and layers (bench/latency/gpu_cases.toml) are checked before they are timed; then come the checks of
``gates``. No case begins that could not end in time if it took as long as the longest of its kind. Each is appended to
DIR/latency.jsonl, which a later run goes on from. Triton compiles kernels at first use, unless TRITON_CACHE_DIR has
them from `make kernels` with this machine's Triton and Python.
"""

import argparse
import functools
import json
import os
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from headcount.bench.cli import Parser, add_output
from headcount.bench.column import Column, plural
from headcount.bench.errors import UsageError
from headcount.bench.latency import gates, schedule
from headcount.bench.latency.timing_cases import TimingCase
from headcount.bench.result import Result, Row, Table, columns_of, shown
from headcount.models.configs.presets import preset


@functools.cache
def read_parts() -> dict[str, dict[str, Any]]:
    """Return the parts of gpu_cases.toml by name, in their order."""
    return tomllib.loads(Path(__file__).with_name("gpu_cases.toml").read_text(encoding="utf-8"))


def part_cases(
    part: str, device: str = "cuda", dtype: str = "bfloat16", tokens: int | None = None
) -> dict[TimingCase, float]:
    """Return the cases of a part of gpu_cases.toml, each with the seconds that it is expected to take.

    ``tokens`` of a call replace those of the part; a longer sequence is cut, but for a model of a fixed length.
    """
    found = {}
    values = read_parts()[part]
    if "cases" not in values:
        checks = gates.check_cases(gates.LAYERS, device, dict.fromkeys((dtype, *gates.DTYPES[device])))
        return dict.fromkeys(checks, values["seconds"])
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


def parser(prog: str) -> argparse.ArgumentParser:
    """Return the command line of bench.latency campaign."""
    out = Parser(prog=prog, description=(__doc__ or "").replace("python -m bench.latency campaign", prog))
    parts = list(read_parts())
    default = f"(default: {', '.join(parts)})"
    out.add_argument("--part", nargs="+", choices=parts, default=parts, metavar="PART", help=default)
    schedule.add_options(out, "--within", "--commit", "--blocks")
    schedule.add_options(out, "--out-dir", help="folder of latency.jsonl and env.json; required without --list")
    schedule.add_options(out, "--device", default="cuda")
    dtypes = ("bfloat16", "float16", "float32")
    schedule.add_options(out, "--dtype", choices=dtypes, default="bfloat16", help="(default: %(default)s)")
    tokens = {part["subject"]: part["tokens"] for part in timed_parts().values()}
    default = ", ".join(f"{number} of a {subject}" for subject, number in tokens.items())
    schedule.add_options(out, "--tokens", help=f"tokens of a call (default: {default})")
    listed = "list the cases with their expected seconds; with --brief the sums"
    out.add_argument("--list", action="store_true", help=listed)
    add_output(out)
    return out


def command(args: argparse.Namespace, argv: Sequence[str] = ()) -> Result | Callable[[], int]:
    """Return the tables of a campaign, one for each part; each begins when the one before it has been printed."""
    schedule.check_limits(args)
    parts = {part: part_cases(part, args.device, args.dtype, args.tokens) for part in dict.fromkeys(args.part)}
    if args.list:
        return _list_parts(parts)
    if not args.out_dir:
        raise UsageError("the following arguments are required: --out-dir")

    def cases() -> list[list[TimingCase]]:
        print(describe_cache(), file=sys.stderr)
        runnable = [[case for case in part if _runs_here(case)] for part in parts.values()]
        return [part for part in runnable if part]

    return schedule.plan_cases(args, argv, cases)


def _runs_here(case: TimingCase) -> bool:
    """Return whether the requested implementations of a case run on its device; the reason is reported on stderr."""
    try:
        case.impls()
    except UsageError as error:
        print(f"skipped, {error}: {case.key}", file=sys.stderr)
        return False
    return True


@dataclass(frozen=True)
class ExpectedRow(Row):
    """A case of a campaign, and the seconds that it is expected to take."""

    case: str = shown(Column, "case", width=72)
    seconds: float = shown(Column, "estimate", "s", kind="fixed", digits=1, width=8, priority=0)


def _list_parts(parts: Mapping[str, Mapping[TimingCase, float]]) -> Result:
    """Return a table of the cases of each part."""
    tables, sums = [], []
    for part, cases in parts.items():
        rows = [ExpectedRow(case.key, seconds) for case, seconds in cases.items()]
        sums.append(f"{part} {sum(cases.values()):.0f} s ({plural(len(cases), 'case')})")
        tables.append(Table(part, f"Part {part}", columns_of(ExpectedRow), rows, detail=True))
    total_s = sum(row.seconds for table in tables for row in table.rows)
    sentence = f"Estimate on an NVIDIA H200: {', '.join(sums)}; {total_s:,.0f} s in all. Nothing was measured."
    return Result(tables, lambda: sentence)


def describe_cache() -> str:
    """Return how many compiled kernels Triton's cache holds, by the version that compiled them."""
    folder = Path(os.environ.get("TRITON_CACHE_DIR") or Path.home() / ".triton" / "cache")
    versions: Counter[str] = Counter()
    for file in folder.glob("*/*.json"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            versions[json.loads(file.read_text(encoding="utf-8"))["triton_version"]] += 1
    by = "".join(f", {count} of Triton {version}" for version, count in sorted(versions.items()))
    return f"{plural(versions.total(), 'compiled kernel')} in {folder}{by}"
