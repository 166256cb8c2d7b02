"""python -m bench.latency: time per layer and per model, beside exact MACs and the hardware's floor.

    python -m bench.latency --quick                                   a small table in under a minute
    python -m bench.latency --layer moa-8K8E128D --seq-len 128 512    one layer and the dense layers beside it
    python -m bench.latency --model moa-8K8E128D --pass both          a whole model, trained
    python -m bench.latency --device cuda --record                    the full table, stored under reports/records
    python -m bench.latency --within 300 --order value --out-dir DIR  what is most wanted first, for five minutes
    python -m bench.latency campaign --within 580 --out-dir DIR       all that the documents need of a GPU, in order
    python -m bench.latency gates --device cuda                       is every arm right? nothing is timed
    python -m bench.latency --estimate --device h200                  what to expect, by arithmetic: no measurement
    python -m bench.latency compare OLD.jsonl NEW.jsonl               faster, slower or no evidence, row by row

Each arm is checked against the float64 reference before it is timed. Arms of a cell run interleaved; the same code
timed twice gives the noise. Below 20 blocks a table is a smoke test. An arm that fails is a row that says why; where it
leaves the device unusable, the run goes on in a new process if its records are stored. Exit codes: 0 fine; 1 an arm was
wrong or failed; 2 wrong usage; 3 no such device.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headcount.bench.cli import Parser, Work, add_output, serve, start
from headcount.bench.errors import UsageError

PROG = "python -m bench.latency"
if __name__ == "__main__":
    start(PROG, "headcount.bench.latency.__main__", "torch")

from headcount.bench import records
from headcount.bench.hardware import HARDWARE
from headcount.bench.latency import arms, numbers, routings
from headcount.bench.latency.cells import ELEMENT_BYTES
from headcount.bench.latency.table import Columns
from headcount.bench.measure import check_device
from headcount.bench.table import Section
from headcount.models.configs import layers

PASSES = ("forward", "backward", "both", "decode")
DTYPES = tuple(ELEMENT_BYTES)
SEQ_LENS = {"cpu": (10, 128, 512), "cuda": (10, 128, 512, 2048, 8192)}
TOKENS = {"cpu": 1024, "cuda": 16384}
BLOCKS = 20
QUICK = {"layer": ["mha-base", "moa-8K8E128D"], "seq_len": [128], "blocks": 5, "passes": ["forward"], "tokens": 512}
OTHERS = ("compare", "gates", "campaign")
"""What has a command line of its own: ``bench/latency/<name>.py``."""


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """The command line of bench.latency."""
    out = Parser(prog=prog, description=(__doc__ or "").replace(PROG, prog))
    out.add_argument("--layer", nargs="+", metavar="NAME", help=f"{', '.join(layers.LAYERS)}, or all: the default")
    out.add_argument("--model", nargs="+", metavar="NAME", help="a preset, or all")
    known = dict.fromkeys(name for names in arms.arms_by_variant().values() for name in names)
    out.add_argument("--arm", nargs="+", metavar="NAME", help=f"how a layer is run: {', '.join(known)}")
    # its name in earlier versions
    out.add_argument("--implementation", nargs="+", dest="arm", help=argparse.SUPPRESS)
    out.add_argument("--seq-len", nargs="+", type=int, metavar="T")
    shape = out.add_mutually_exclusive_group()
    shape.add_argument("--tokens", type=int, metavar="N", help="per call: the batch is N / T, at least 1")
    shape.add_argument("--batch-size", type=int, metavar="N")
    out.add_argument("--dtype", choices=DTYPES, help="float32 on cpu, bfloat16 elsewhere")
    out.add_argument("--pass", nargs="+", choices=PASSES, dest="passes", metavar="PASS", help=", ".join(PASSES))
    out.add_argument("--device", choices=("cpu", "cuda", *HARDWARE), help="cpu; named hardware with --estimate")
    out.add_argument("--routing", nargs="+", choices=routings.ROUTINGS, default=["balanced"])
    out.add_argument(
        "--threads", type=int, metavar="N", help="of torch on the CPU; as many as torch takes unless given"
    )
    out.add_argument("--blocks", type=int, metavar="N", help=f"{BLOCKS} unless given; fewer is a smoke test")
    out.add_argument("--quick", action="store_true", help="two layers, one length, five blocks")
    out.add_argument("--estimate", action="store_true", help="print what is to be expected, and measure nothing")
    out.add_argument("--hardware", choices=HARDWARE, help="whose data sheet stands for measured peaks")
    out.add_argument("--within", type=float, metavar="SECONDS", help="begin no cell that would not finish in time")
    out.add_argument("--order", choices=("given", "value"), default="given", help="value: what documents need first")
    out.add_argument("--commit", metavar="SHA", help="what is measured, where there is no repository to ask")
    store = out.add_mutually_exclusive_group()
    store.add_argument("--json", metavar="PATH", help="append records there; cells that it holds are not run again")
    store.add_argument("--out-dir", metavar="DIR", help="the same, in latency.jsonl there, and the environment")
    store.add_argument("--record", action="store_true", help="the same, at the device's place under reports/records")
    out.add_argument("--list", action="store_true", help="what there is to choose from")
    add_output(out)
    return out


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run the command under the name ``prog``; its exit code."""
    from importlib import import_module

    from headcount.bench.latency.annotations import stand_in

    stand_in()
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv[:1] and argv[0] in OTHERS:
        name = f"{prog} {argv[0]}"
        other = import_module(f"headcount.bench.latency.{argv[0]}")
        return serve(name, other.parser(name), other.plan, argv[1:], tells=True)
    return serve(prog, parser(prog), lambda args: plan(args, argv), argv, tells=True)


def plan(args: argparse.Namespace, argv: Sequence[str] = ()) -> Work | str:
    """The cells that ``args`` asks for, measured as they are printed; ``argv`` is stored beside them."""
    if args.list:
        return _listing()
    if args.estimate:
        return _estimated(args)
    args.device = args.device or "cpu"
    if args.device in HARDWARE:
        raise UsageError(f"--device {args.device} is named hardware, which only --estimate takes; choose cpu or cuda")
    fill(args)
    check_device(args.device, ["cpu"])
    if args.threads:
        import torch

        torch.set_num_threads(args.threads)
    cells = _cells(args)
    from headcount.bench.env import device_name, environment
    from headcount.bench.latency.session import Session, write_json
    from headcount.bench.latency.store import Store

    environ = environment(args.device, ["bench.latency", *argv])
    if args.commit:
        environ |= {"commit": args.commit, "dirty": None}
    path = Path(args.json) if args.json else None
    if args.out_dir:
        path = Path(args.out_dir) / "latency.jsonl"
        write_json(Path(args.out_dir) / "env.json", environ)
    if args.record:
        today = datetime.now(UTC).date().isoformat()
        path = records.place(records.writable(), device_name(args.device), today, environ["commit"])
    hardware = HARDWARE.get(args.hardware)
    columns = Columns(args.device, hardware)
    session = Session(Store(path), columns, environ, blocks=args.blocks, within=args.within, hardware=hardware)
    session.store.ready(cell.key for cell in cells)
    if args.within is not None:
        session.announce(cells)
    section = Section(columns.table(environ, args.blocks), session.rows(cells), columns.below())
    said = f", records in {path}" if path else ""
    return Work([section], remark=lambda: said + session.remark(), result=columns.result)


def _estimated(args: argparse.Namespace) -> Work:
    from headcount.bench.latency import estimate

    hardware = HARDWARE.get(args.device or "h200")
    if hardware is None:
        raise UsageError(f"--estimate is of named hardware; choose --device {', '.join(HARDWARE)}, not {args.device}")
    args.device = "cuda"
    fill(args)
    section = estimate.section(_cells(args, installed=False), hardware)
    section = replace(section, rows=list(section.rows))
    return Work([section], result=lambda printed: f"{len(printed[0].rows)} rows estimated; nothing was measured.")


def fill(args: argparse.Namespace) -> None:
    """Defaults that depend on one another; UsageError for numbers that cannot be."""
    if args.quick:
        for name, value in QUICK.items():
            if not getattr(args, name) and not (name == "layer" and args.model):
                setattr(args, name, value)
    args.dtype = args.dtype or ("bfloat16" if args.device == "cuda" else "float32")
    args.passes = args.passes or ["forward", "both"]
    args.tokens = TOKENS[args.device] if args.tokens is None else args.tokens
    args.blocks = BLOCKS if args.blocks is None else args.blocks
    numbers.check(args)


def _cells(args: argparse.Namespace, installed: bool = True) -> list[Any]:
    from headcount.bench.latency import order
    from headcount.bench.latency.cells import cells_of_layers, cells_of_models

    shape = {
        "tokens": args.tokens,
        "batch_size": args.batch_size,
        "dtype": args.dtype,
        "device": args.device,
        "asked": tuple(args.arm) if args.arm else None,
    }
    found = []
    if args.layer or not args.model:
        names = list(layers.LAYERS) if args.layer in (None, ["all"]) else args.layer
        found += cells_of_layers(names, args.seq_len or SEQ_LENS[args.device], args.passes, args.routing, **shape)
    if args.model:
        names = arms.timed_models() if args.model == ["all"] else args.model
        found += cells_of_models(names, args.seq_len, args.passes, **shape)
    for cell in found if installed else ():
        # Every name is checked before the first cell runs.
        cell.arms()
    return order.by_value(found) if args.order == "value" else found


def _listing() -> str:
    return "\n".join(
        [
            "layers           " + ", ".join(layers.LAYERS),
            "models           " + ", ".join(arms.timed_models()),
            *(f"arms             {name}: {', '.join(how)}" for name, how in arms.arms_by_variant().items()),
            "routings         " + ", ".join(routings.ROUTINGS),
            "passes           " + ", ".join(PASSES),
            "dtypes           " + ", ".join(DTYPES),
            "hardware         " + ", ".join(f"{name}: {found.name}" for name, found in HARDWARE.items()),
        ]
    )
