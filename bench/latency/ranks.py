"""Time a step of a language model that torch divides over the processes of torchrun.

    torchrun --standalone --nproc-per-node 4 -m headcount latency llama3-8b --set num_layers=1 vocab_size=4096 \\
        --seq-len 256 --plan tp=4,sp

gloo on CPUs, NCCL on GPUs. Rank 0 alone builds the whole model, in float64; outputs and gradients of the divided model
must equal its own. Then each step is timed from a barrier to the end of its slowest rank. A rank that dies or hangs
ends the command, and is named. Exit codes: 0 fine; 1 results differ or a rank is lost; 2 wrong usage; 3 no memory.
"""

import argparse
import io
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from pathlib import Path

from headcount.bench import records
from headcount.bench.case import Case, describe_input
from headcount.bench.cli import SET, Parser, add_output
from headcount.bench.column import Column, macs_column
from headcount.bench.env import environment
from headcount.bench.errors import EnvironmentMissing, UsageError
from headcount.bench.hardware import by_device
from headcount.bench.latency import schedule
from headcount.bench.latency.statistics import TRUSTED_BLOCKS, median_interval
from headcount.bench.latency.timing_cases import ELEMENT_BYTES, PASS
from headcount.bench.result import Result, Table, columns_of, shown
from headcount.formulas.plan import Plan, parse
from headcount.formulas.rank import INDEX, PARAMETER, REDUCTION, RankCost, rank_costs
from headcount.models.configs.targets import read

PROG = "python -m bench.latency"
TIMEOUT_S = 300
GRACE_S = 10
"""Seconds in which torchrun ends the ranks that are left after one has died."""
RULE = "forward MACs of the whole model as executed, three times for a step, recomputation left out"
"""The rule of model FLOPs utilization."""


@dataclass(frozen=True)
class StepRecord(records.Record):
    """Timed steps of a divided model.

    Attributes:
        name: the preset, whose fields ``set`` changes.
        lengths: the input of a rank.
        mesh: number of ranks by axis.
        backend: of the process group: nccl or gloo.
        which: the pass: forward or both; ``pass`` in JSON.
        rank_ms: milliseconds of each step by rank.
        slowest_ms: median of the slowest rank's milliseconds, with its interval.
        macs: multiply-accumulates of a rank; ``model_macs`` of the whole model.
        sent_bytes: bytes that leave a rank.
        bandwidth: ``sent_bytes`` per second.
        peak_macs_per_s: rate of the device's data sheet; None without one.
        mfu: model FLOPs utilization by ``rule``; None without a peak.
        smoke: too few steps for a measurement.
    """

    kind = "latency-ranks"
    name: str
    set: list[str]
    lengths: Mapping[str, int]
    plan: str = shown(Column, "plan")
    mesh: Mapping[str, int]
    backend: str
    dtype: str
    which: str = field(metadata={"column": lambda _: PASS})
    rank_ms: list[records.Samples]
    slowest_ms: records.Interval = shown(Column, "median\n[95 %]", "ms", kind="interval", digits=2, priority=0)
    macs: int = shown(macs_column, "MACs of\na rank", priority=2)
    model_macs: int
    sent_bytes: int = shown(Column, "sent by\na rank", "bytes", kind="int", of="bytes", priority=1)
    bandwidth: float = shown(Column, "sent /\ntime", "MB/s", kind="fixed", digits=1, scale=10**6, priority=1)
    peak_macs_per_s: float | None
    mfu: float | None = shown(Column, "MFU", "%", kind="fixed", digits=1, scale=Fraction(1, 100), priority=1)
    rule: str
    smoke: bool
    environment: records.Environment


def parser(prog: str) -> argparse.ArgumentParser:
    """Return the command line of ``latency --plan``."""
    out = Parser(prog=prog, description=__doc__)
    out.add_argument("preset", metavar="PRESET", help="a language model, as llama3-8b")
    out.add_argument("--plan", required=True, metavar="PLAN", help="tp=4,sp or dp=2,tp=2 or dp=4,fsdp")
    out.add_argument("--set", **SET, help="change fields of the preset")
    out.add_argument("--seq-len", type=int, metavar="T")
    out.add_argument("--batch-size", type=int, metavar="B", help="sequences of each rank of dp (default: 1)")
    out.add_argument("--pass", choices=("forward", "both"), default="both", dest="which", help="(default: both)")
    schedule.add_options(out, "--dtype", "--device")
    schedule.add_options(out, "--blocks", help="timed steps (default: %(default)s)")
    out.add_argument(
        "--timeout", type=int, metavar="SECONDS", default=TIMEOUT_S,
        help="end the run where no rank begins a collective for so long (default: 300); torchrun takes up to 30 more",
    )  # fmt: skip
    schedule.add_options(out, "--json", help="append a record there")
    add_output(out)
    return out


def command(args: argparse.Namespace, argv: Sequence[str] = ()) -> Result | str:
    """Check the divided model and time its steps, on every rank; return the table on rank 0, and nothing elsewhere."""
    rank = int(os.environ.get("RANK", 0))
    if rank:
        # rank 0 prints, and reports what is wrong with the command line
        sys.stdout = sys.stderr = io.StringIO()
    schedule.prepare(args)
    args.dtype = args.dtype or schedule.DTYPE[args.device]
    name, fields, lengths = read(args.preset, args.set)
    lengths |= {name: size for name in ("seq_len", "batch_size") if (size := getattr(args, name)) is not None}
    case = Case.of(name, fields, lengths, called=args.preset)
    divided = parse(args.plan)
    cost = _cost(case, divided, args.plan)
    every = replace(case, lengths={**case.lengths, "batch_size": case.lengths["batch_size"] * divided.dp})
    (whole,) = rank_costs(every.ledger, Plan())
    _check_memory(cost, whole, args.device)
    stores = args.json and rank == 0
    if stores:
        records.append(Path(args.json))
    record = _record(args, case, cost, whole, _measure(args, every, divided))
    if stores:
        records.append(Path(args.json), record)
    return "" if rank else Result([_table(record)], lambda: _sentence(record))


def _cost(case: Case, divided: Plan, text: str) -> RankCost:
    """Return the cost of a rank.

    Raises UsageError for plans that are not timed here, and for another number of processes.
    """
    timed = Plan(tp=divided.tp, sp=divided.sp, dp=divided.dp, zero=divided.zero)
    if divided != timed or divided.zero in (1, 2) or not getattr(case.config, "columns", ()):
        raise UsageError(f"--plan {text} of {case.name}: timed are tp, sp, dp and fsdp of LLaMA models")
    (cost,) = rank_costs(case.ledger, divided)
    if int(os.environ.get("WORLD_SIZE", 0)) != divided.ranks:
        started = f"torchrun --standalone --nproc-per-node {divided.ranks} -m headcount latency … --plan {text}"
        raise UsageError(f"--plan {text} has {divided.ranks} ranks; run {started}")
    return cost


def _check_memory(cost: RankCost, whole: RankCost, device: str) -> None:
    """Raise EnvironmentMissing where the check in float64 needs more memory than is free where rank 0 is."""
    if device == "cuda":
        import torch

        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        free, together = torch.cuda.mem_get_info()[0], 1
    else:
        import psutil

        free, together = psutil.virtual_memory().available, int(os.environ["LOCAL_WORLD_SIZE"])
    needed = _float64_bytes(whole) + together * _float64_bytes(cost)
    if needed > free:
        raise EnvironmentMissing(f"the check in float64 needs {needed:,} bytes of memory; {free:,} are free")


def _float64_bytes(cost: RankCost) -> int:
    """Return a bound of the bytes of weights, gradients and activations, the reference's T x S numbers included."""
    scores = sum(2 * entry.size for entry in cost.ledger if entry.kind == "softmax")
    return 8 * (2 * cost.ledger.params + cost.activation_elements() + scores)


def _measure(args: argparse.Namespace, case: Case, divided: Plan) -> list[list[float]]:
    """Return the seconds of each step on the sequences of ``case`` by rank, after the check."""
    import torch

    from headcount.bench.latency.sharded_step import NotEqual, ShardedStep, Watchdog, process_group

    with process_group(args.device):
        step = ShardedStep(case, divided, args.device, args.which == "both")
        try:
            with Watchdog(f"{PROG} --plan", step.groups(), args.timeout):
                weights = step.check()
                return step.time(step.divide(weights, getattr(torch, args.dtype)), args.blocks)
        except NotEqual:
            raise
        except Exception:
            # where another rank has died, torchrun ends this one, and names that
            time.sleep(GRACE_S)
            sys.stderr = sys.__stderr__
            raise


def _record(
    args: argparse.Namespace, case: Case, cost: RankCost, whole: RankCost, seconds: Sequence[Sequence[float]]
) -> StepRecord:
    """Return the record of a run: its mesh, the samples of all ranks, and what a rank computes and sends."""
    trains, size = args.which == "both", ELEMENT_BYTES[args.dtype]
    element_bytes = {PARAMETER: size, REDUCTION: size, INDEX: 8}
    sent = cost.sent_bytes("forward", *("backward", "sync") * trains, element_bytes=element_bytes)
    environ = environment(args.device)
    hardware = by_device(environ["device"])
    peak = hardware and hardware.macs_per_s[args.dtype]
    macs, model_macs = (one.step_macs if trains else one.ledger.macs for one in (cost, whole))
    slowest = median_interval([1000 * max(step) for step in zip(*seconds, strict=True)])
    middle = slowest.value / 1000
    return StepRecord(
        name=args.preset,
        set=list(args.set),
        lengths=dict(case.lengths),
        plan=args.plan,
        mesh={axis: getattr(cost.plan, axis) for axis in ("dp", "tp")},
        backend="nccl" if args.device == "cuda" else "gloo",
        dtype=args.dtype,
        which=args.which,
        rank_ms=[[1000 * one for one in own] for own in seconds],
        slowest_ms=asdict(slowest),
        macs=macs,
        model_macs=model_macs,
        sent_bytes=sent,
        bandwidth=sent / middle,
        peak_macs_per_s=peak,
        mfu=peak and model_macs / (middle * cost.ranks * peak),
        rule=RULE,
        smoke=args.blocks < TRUSTED_BLOCKS,
        environment=environ,
    )


def _table(record: StepRecord) -> Table[StepRecord]:
    """Return the table of a record."""
    ranks, steps = len(record.rank_ms), len(record.rank_ms[0])
    smoke = f"; {steps} steps: a smoke test, not a measurement" if record.smoke else ""
    where = f"{ranks} ranks ({record.backend}) of {record.environment['device']}, {record.dtype}{smoke}"
    notes = [
        f"Input of a rank: {describe_input(record.lengths)}. Median over {steps} steps of the slowest rank's time, "
        "with a 95 % bootstrap interval. In float64 the divided model equals the whole one.",
        f"MFU: {record.rule}; a dash where no data sheet names the device.",
    ]
    return Table(f"{record.name}-ranks", f"{record.name} on {where}", columns_of(StepRecord), [record], notes)


def _sentence(record: StepRecord) -> str:
    took = f"{record.slowest_ms['value']:.2f} ms"
    return f"A step of the slowest rank takes {took} and sends {record.sent_bytes:,} bytes."
