"""``python -m bench.latency``: time per layer and per model, beside exact MACs and the hardware's floor.

    python -m bench.latency --quick                                   a small table in under a minute
    python -m bench.latency --layer moa-8K8E128D --seq-len 128 512    one layer and the dense layers beside it
    python -m bench.latency --model moa-8K8E128D --pass both          a whole model, trained
    python -m bench.latency --device cuda --record                    the full table, stored under reports/records
    python -m bench.latency compare OLD.jsonl NEW.jsonl               faster, slower or no evidence, row by row

Each arm is checked against the float64 reference before it is timed. Arms of a cell run interleaved; the same code
timed twice gives the noise. Below 20 blocks a table is a smoke test. Exit codes: 0 fine; 1 an arm was wrong; 2 wrong
usage; 3 no such device.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headcount.bench import records
from headcount.bench.cli import Parser, Work, serve
from headcount.bench.errors import UsageError
from headcount.bench.latency import arms, workload
from headcount.bench.latency.table import Columns
from headcount.bench.measure import check_device
from headcount.bench.table import Row, Section
from headcount.models.configs import layers

PROG = "python -m bench.latency"
PASSES = ("forward", "backward", "both", "decode")
DTYPES = ("float32", "bfloat16", "float16", "float64")
SEQ_LENS = {"cpu": (10, 128, 512), "cuda": (10, 128, 512, 2048, 8192)}
TOKENS = {"cpu": 1024, "cuda": 16384}
BLOCKS = 20
QUICK = {"layer": ["mha-base", "moa-8K8E128D"], "seq_len": [128], "blocks": 5, "passes": ["forward"], "tokens": 512}


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """The command line of bench.latency."""
    out = Parser(prog=prog, description=__doc__.replace(PROG, prog))
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
    out.add_argument("--dtype", choices=DTYPES, help="float32 on cpu, bfloat16 on cuda")
    out.add_argument("--pass", nargs="+", choices=PASSES, dest="passes", metavar="PASS", help=", ".join(PASSES))
    out.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    out.add_argument("--routing", nargs="+", choices=workload.ROUTINGS, default=["balanced"])
    out.add_argument(
        "--threads", type=int, metavar="N", help="of torch on the CPU; as many as torch takes unless given"
    )
    out.add_argument("--blocks", type=int, metavar="N", help=f"{BLOCKS} unless given; fewer is a smoke test")
    out.add_argument("--quick", action="store_true", help="two layers, one length, five blocks")
    store = out.add_mutually_exclusive_group()
    store.add_argument("--json", metavar="PATH", help="append records there; cells that it holds are not run again")
    store.add_argument("--record", action="store_true", help="the same, at the device's place under reports/records")
    out.add_argument("--format", choices=("text", "md", "csv", "latex"), default="text")
    out.add_argument("--out", metavar="PATH", help="write the table there instead of stdout")
    out.add_argument("--list", action="store_true", help="what there is to choose from")
    return out


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run the command under the name ``prog``; its exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv[:1] == ["compare"]:
        from headcount.bench.latency import compare

        return serve(f"{prog} compare", compare.parser(f"{prog} compare"), compare.plan, argv[1:])
    return serve(prog, parser(prog), lambda args: plan(args, argv), argv)


def plan(args: argparse.Namespace, argv: Sequence[str] = ()) -> Work | str:
    """The cells that ``args`` asks for, measured as they are printed; ``argv`` is stored beside them."""
    if args.list:
        return _listing()
    _fill(args)
    check_device(args.device)
    if args.threads:
        import torch

        torch.set_num_threads(args.threads)
    cells = list(_cells(args))
    from headcount.bench.env import commit, device_name, environment

    path = Path(args.json) if args.json else None
    if args.record:
        today = datetime.now(UTC).date().isoformat()
        path = records.place(records.writable(), device_name(args.device), today, commit())
    environ = environment(args.device, ["bench.latency", *argv])
    columns = Columns(args.device)
    rows = _rows(cells, _stored(path), path, args.blocks, environ, columns)
    section = Section(columns.table(environ, args.blocks), rows, columns.below())
    return Work([section], remark=lambda: f", records in {path}" if path else "")


def _fill(args: argparse.Namespace) -> None:
    """Defaults that depend on one another; UsageError for numbers below 1."""
    if args.quick:
        for name, value in QUICK.items():
            if not getattr(args, name) and not (name == "layer" and args.model):
                setattr(args, name, value)
    args.dtype = args.dtype or ("bfloat16" if args.device == "cuda" else "float32")
    args.passes = args.passes or ["forward", "both"]
    args.tokens = TOKENS[args.device] if args.tokens is None else args.tokens
    args.blocks = BLOCKS if args.blocks is None else args.blocks
    for name in ("tokens", "batch_size", "blocks", "threads"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise UsageError(f"--{name.replace('_', '-')} must be at least 1, not {value}")
    if args.seq_len and min(args.seq_len) < 1:
        raise UsageError(f"--seq-len must be at least 1, not {min(args.seq_len)}")


def _cells(args: argparse.Namespace) -> Iterator[Any]:
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
    for cell in found:
        # Every name is checked before the first cell runs.
        cell.arms()
    return iter(found)


def _stored(path: Path | None) -> dict[str, list[dict[str, Any]]]:
    """Records of earlier runs by cell; lines that are none are named on stderr."""
    if path is None or not path.exists():
        return {}
    found, problems = records.read(path)
    for problem in problems:
        print(f"{PROG}: {problem}", file=sys.stderr)
    by_cell: dict[str, list[dict[str, Any]]] = {}
    for record in found:
        if record.get("kind") == "latency":
            by_cell.setdefault(record["cell"], []).append(record)
    # A cell is stored with all its arms or is run again.
    return {cell: rows for cell, rows in by_cell.items() if len(rows) == rows[0]["arms_in_cell"]}


def _rows(cells, done, path, blocks, environ, columns) -> Iterator[Row]:
    from headcount.bench.latency import clock, roofline
    from headcount.bench.latency.cells import DTYPES as TORCH_DTYPES
    from headcount.bench.latency.telemetry import Telemetry

    peaks = None
    for number, cell in enumerate(cells, 1):
        if cell.key in done:
            yield from (Row(columns.values(record), columns.notes(record)) for record in done[cell.key])
            continue
        if peaks is None:
            peaks = roofline.measure_peaks(cell.device, TORCH_DTYPES[cell.dtype])
        progress = _Progress(f"{number}/{len(cells)} {cell.key}", blocks)
        with Telemetry(cell.device) as telemetry:
            found = list(clock.measure_cell(cell, peaks, blocks=blocks, on_block=progress))
        progress.close()
        for record in found:
            record |= {"arms_in_cell": len(found), "telemetry": telemetry.summary(), "environment": environ}
            if path:
                records.append(path, record)
            wrong = [f"{record['arm']} {record['implementation']}: {record['status']}"]
            failures = wrong if record["status"].startswith("wrong") else ()
            yield Row(columns.values(record), columns.notes(record), failures=failures)


class _Progress:
    """A bar over a cell's blocks on stderr, silent where that is no terminal."""

    def __init__(self, label: str, blocks: int) -> None:
        from tqdm import tqdm

        self.bar = tqdm(total=blocks, desc=label, unit="block", file=sys.stderr, leave=False, disable=None)

    def __call__(self, block: int) -> None:
        self.bar.update()

    def close(self) -> None:
        self.bar.close()


def _listing() -> str:
    return "\n".join(
        [
            "layers           " + ", ".join(layers.LAYERS),
            "models           " + ", ".join(arms.timed_models()),
            *(f"arms             {name}: {', '.join(how)}" for name, how in arms.arms_by_variant().items()),
            "routings         " + ", ".join(workload.ROUTINGS),
            "passes           " + ", ".join(PASSES),
            "dtypes           " + ", ".join(DTYPES),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
