"""``python -m bench.latency campaign``: all that the documents need of a GPU, the most wanted first, in one command.

In this order: the environment, the peaks, the gates, kernels to choose from, then cells: the paper's layers, decoding,
MoH, whole models. No cell is begun that would not finish; every finished one is in DIR/latency.jsonl at once. With the
file of an earlier run there, the run goes on where that one left off. The last lines say what is missing.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from headcount.bench import records
from headcount.bench.cli import Parser, Work, add_output
from headcount.bench.errors import UsageError
from headcount.bench.latency import gates, numbers
from headcount.bench.measure import check_device
from headcount.bench.output.files import made, write
from headcount.bench.table import Row, Section

PROG = "python -m bench.latency campaign"
WITHIN_S = 580.0
GATES_SHARE, CHOICES_SHARE = 0.2, 0.3
"""Of the time, until which gates and choices are begun."""
BLOCKS, TOKENS = 20, 16384


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """The command line of bench.latency campaign."""
    out = Parser(prog=prog, description=(__doc__ or "").replace(PROG, prog))
    out.add_argument("--within", type=float, metavar="SECONDS", default=WITHIN_S, help=f"{WITHIN_S:g} unless given")
    out.add_argument("--out-dir", metavar="DIR", required=True, help="where everything is stored")
    out.add_argument("--commit", metavar="SHA", help="what is measured, where there is no repository to ask")
    out.add_argument("--device", choices=("cpu", "cuda"), default="cuda", help="cuda unless given")
    out.add_argument(
        "--dtype", choices=("bfloat16", "float16", "float32"), default="bfloat16", help="bfloat16 unless given"
    )
    out.add_argument("--tokens", type=int, metavar="N", default=TOKENS, help=f"per call, {TOKENS} unless given")
    out.add_argument("--blocks", type=int, metavar="N", default=BLOCKS, help=f"{BLOCKS} unless given")
    add_output(out)
    return out


def plan(args: argparse.Namespace) -> Work:
    """Everything in order; each part begins when the one before it has been printed."""
    numbers.check(args, "tokens", "blocks")
    if args.within < 0:
        raise UsageError(f"--within must be at least 0, not {args.within}")
    check_device(args.device, ["cpu"])
    from headcount.bench.env import environment
    from headcount.bench.latency import order
    from headcount.bench.latency.session import Session, write_json
    from headcount.bench.latency.store import Store
    from headcount.bench.latency.table import Columns

    out_dir = Path(args.out_dir)
    environ = environment(args.device, ["bench.latency", "campaign", "--within", f"{args.within:g}"])
    if args.commit:
        environ |= {"commit": args.commit, "dirty": None}
    store, columns = Store(out_dir / "latency.jsonl"), Columns(args.device)
    session = Session(store, columns, environ, blocks=args.blocks, within=args.within)
    write_json(out_dir / "env.json", environ)
    cells = order.campaign_cells(args.device, args.dtype, args.tokens)
    store.ready(cell.key for cell in cells)
    session.announce(cells)
    sections = _sections(args, session, cells, out_dir)
    return Work(
        sections,
        remark=lambda: f", records in {store.path}" + _missing(session, cells, out_dir),
        result=session.columns.result,
    )


def _sections(args, session, cells, out_dir: Path) -> Iterator[Section]:
    from headcount.bench.latency.store import go_on

    def before(share: float) -> bool:
        return session.left_s > (1 - share) * args.within

    path = session.store.path
    known = _kept(path, gates.KIND)
    cells_of_gates = gates.gate_cells(gates.LAYERS, args.device)
    on_lost = partial(go_on, session.started)
    yield gates.section(cells_of_gates, path, lambda: before(GATES_SHARE), known, on_lost)
    if args.device == "cuda":
        from headcount.bench.latency import tuning

        yield Section(tuning.TABLE, _choices(args, out_dir, before(CHOICES_SHARE)))
    peaks = session.peaks_of(args.dtype, args.device)
    print(f"peaks: {json.dumps(peaks.as_dict())}", file=sys.stderr)
    table = session.columns.table(session.environ, args.blocks)
    yield Section(table, session.rows(cells), session.columns.below())


def _choices(args, out_dir: Path, in_time: bool) -> Iterator[Row]:
    """The ways that are tried, once: those of an earlier run are kept."""
    from headcount.bench.latency import tuning
    from headcount.bench.latency.session import write_json
    from headcount.bench.latency.shared import DTYPES

    path = out_dir / "choices.json"
    if path.is_file() and (kept := _read(path)) is not None:
        found = kept
    elif in_time:
        found = list(tuning.choices(args.tokens, DTYPES[args.dtype]))
        write_json(path, found)
    else:
        found = []
    for row in found:
        yield Row(row, [], [row])


def _read(path: Path) -> list[dict[str, Any]] | None:
    """The ways that are stored; None, said on stderr, where what is there is something else."""
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, list) and all(isinstance(row, dict) for row in found):
        return found
    print(f"{path} holds no choices: they are tried again", file=sys.stderr)
    return None


def _kept(path: Path, kind: str) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    found, _ = records.read(path)
    return [record for record in found if record.get("kind") == kind]


def _missing(session: Any, cells: Sequence[Any], out_dir: Path) -> str:
    """Write down what is missing, and say how much it is."""
    why = {cell.key: reason for cell, reason in session.missing}
    lines = [f"{c.key}: {why.get(c.key, 'not begun')}" for c in cells if c.key not in session.store.done]
    write(made(out_dir) / "missing.txt", "".join(f"{line}\n" for line in lines))
    if not lines:
        return "; nothing is missing"
    return "".join(f"\nmissing: {line}" for line in lines) + f"\n{len(lines)} cells are missing"
