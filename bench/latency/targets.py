"""``headcount latency TARGET …``: time user modules, presets and configurations in turns. Imports no torch."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from headcount.bench.cli import Parser, add_output
from headcount.bench.column import TONES, Column, macs_column, plural
from headcount.bench.counting.count import count
from headcount.bench.counting.result import Count
from headcount.bench.latency import schedule
from headcount.bench.latency.statistics import TRUSTED_BLOCKS, median_interval, paired_ratio, verdict
from headcount.bench.latency.timing_cases import check_memory
from headcount.bench.output.progress import stage
from headcount.bench.records import NO_GRAPH, Interval, Samples
from headcount.bench.result import Result, Row, Table, columns_of, shown
from headcount.bench.targets.process import run_isolated, shared_imports
from headcount.bench.targets.target import Target, add_target_options, is_configuration, parse_target
from headcount.models.configs.targets import has_closed_form

DESCRIPTION = """Time models, each with exact MACs.

    headcount latency model.py:make model.py:make,width=11     in turns: each against the first
    headcount latency config.json --seq-len 128 --device cuda

Weights are random. Models run in eval mode, in which they are counted, and with --backward in train mode, with dropout.
Without a TARGET the layers and models of the papers are timed.
"""
TIME = "headcount.bench.latency.time_targets:time_targets"
"""What the process of the targets runs."""
MODES = ("eval", "train")


@dataclass(frozen=True)
class TargetRow(Row):
    """A timed model, with its samples in milliseconds, and its time over that of the first one."""

    target: str = shown(Column, "model", code=True, wraps=16)
    ms: Interval = shown(Column, "median", "ms", kind="interval", digits=3, priority=0)
    to_first: Interval | None = shown(Column, "vs first", kind="interval", digits=2, priority=1)
    verdict: str | None = shown(Column, "verdict", priority=2, tones=TONES)
    macs: int = shown(macs_column, "MACs", priority=3)
    macs_per_s: float = shown(Column, "rate", "GMAC/s", kind="fixed", digits=1, scale=10**9)
    name: str
    params: int | None
    weight_bytes: int
    inputs: Sequence[str]
    wall_ms: Samples
    gpu_ms: Samples | None
    no_graph_because: str | None

    @property
    def notes(self) -> list[str]:
        """Why there is no graph."""
        return [f"{NO_GRAPH}: {self.no_graph_because}"] if self.no_graph_because else []


def parser(prog: str) -> argparse.ArgumentParser:
    """Return the command line of targets to time."""
    out = Parser(prog=prog, usage=f"{prog} TARGET … [OPTION …]", description=DESCRIPTION)
    model = out.add_argument_group("the models")
    model.add_argument("target", nargs="+", metavar="TARGET", help="as headcount count takes it, with ,NAME=VALUE,…")
    add_target_options(model)
    how = out.add_argument_group("how to time")
    how.add_argument("--backward", action="store_true", help="forward and backward (default: forward)")
    how.add_argument("--mode", choices=MODES, help="(default: train with --backward, else eval)")
    schedule.add_options(how, "--device", "--threads", "--blocks")
    out.elsewhere = {"--quick": "--blocks 5", "--pass": "--backward, or neither"}
    add_output(out)
    return out


def command(args: argparse.Namespace) -> Result:
    """Return the table of the targets, counted and timed. Raises what count and run_isolated do."""
    schedule.prepare(args)
    targets = [_with_lengths(parse_target(text, args), len(args.target) > 1) for text in args.target]
    with shared_imports():
        counts = [count(replace(target, device=None)) for target in targets]
    for text, counted in zip(args.target, counts, strict=True):
        check_memory(text, counted.weight_bytes, args.device)
    args.mode = args.mode or MODES[args.backward]
    how = {name: getattr(args, name) for name in ("device", "backward", "blocks", "threads", "mode")}
    with stage("timing"):
        code = [target.spec for target in targets]
        found = run_isolated(TIME, targets, code=code, label=", ".join(args.target), **how)
    rows = [_row(*one, found) for one in zip(args.target, counts, found["targets"], strict=True)]
    passes = f"{'forward and backward' if args.backward else 'forward'} in {args.mode} mode"
    smoke = "" if args.blocks >= TRUSTED_BLOCKS else f"; {plural(args.blocks, 'block')}: a smoke test"
    table = Table(
        "latency-targets",
        f"{passes} on {found['device']}, {plural(found['threads'], 'thread')}, torch {found['torch']}{smoke}",
        columns_of(TargetRow),
        rows,
        above=[f"Median over {args.blocks} blocks in turns, and ratios block by block, with 95 % intervals."],
        note_column="target",
        facts={name: found[name] for name in ("control", "device", "threads", "torch")},
    )
    return Result([table], lambda: f"{plural(len(rows), 'model')} timed.")


def _with_lengths(target: Target, several: bool) -> Target:
    """Return ``target``, a user module of several targets without lengths: they are those of the configurations."""
    has_lengths = is_configuration(target.spec) or has_closed_form(target.spec)
    return replace(target, lengths={}) if several and not has_lengths else target


def _row(target: str, count: Count, samples: Mapping[str, Any], found: Mapping[str, Any]) -> TargetRow:
    """Return the row of a target; ``found`` has the samples of all targets and of the A/A control."""
    first, key = found["targets"][0], "gpu_ms" if samples["gpu_ms"] else "wall_ms"
    median = median_interval(samples[key])
    ratio = None if samples is first else paired_ratio(samples[key], first[key])
    return TargetRow(
        target=target,
        ms=asdict(median),
        to_first=ratio and asdict(ratio),
        verdict=ratio and verdict(ratio, paired_ratio(found["control"][key], first[key])),
        macs=count.macs,
        macs_per_s=1000 * count.macs / median.value,
        name=count.name,
        params=count.params,
        weight_bytes=count.weight_bytes,
        inputs=count.inputs,
        **samples,
    )
