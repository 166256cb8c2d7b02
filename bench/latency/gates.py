"""``python -m bench.latency gates``: is every arm right on this device? Nothing is timed.

Every arm of some layers against the float64 reference, forward and with all gradients, on short, odd and longer
sequences, on a single token whose other experts are idle, and with every token at one expert. On a GPU memory that was
never written holds NaN, a captured graph is replayed on other inputs, and a second run must give the same bits.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from headcount.bench import records
from headcount.bench.cli import Parser, Work, add_output
from headcount.bench.latency import order
from headcount.bench.measure import check_device
from headcount.bench.table import TONES, Column, Row, Section, Table

PROG = "python -m bench.latency gates"
LAYERS = (*order.HEADLINE, "moh-32x64-50", "moh-llama3-50", "mha-base")
SHAPES = ((129, 2, "balanced"), (512, 2, "balanced"), (1, 1, "balanced"), (10, 4, "one-expert"))
"""Tokens of a sequence, sequences, routing."""
DTYPES = {"cpu": ("float32",), "cuda": ("bfloat16", "float32")}
POISON_BYTES = 2**28
KIND = "latency-gate"

TABLE = Table(
    "gates",
    "Arms against the float64 reference; nothing is timed",
    (
        Column("layer", "layer", width=17),
        Column("arm", "arm", width=11, priority=0),
        Column("dtype", "dtype", width=8, priority=0),
        Column("pass", "pass", width=8, priority=0),
        Column("seq_len", "T", kind="int", width=5, priority=0),
        Column("routing", "routing", width=10, priority=2),
        Column("error", "rel.\nerror", width=7, align="right", priority=1),
        Column("bound", "allowed", width=7, align="right", priority=2),
        Column("choices", "other\nchoices", kind="int", width=7, priority=4),
        Column("replay", "replay\nerror", width=7, align="right", priority=3),
        Column("same", "same\nbits", width=4, priority=3),
        Column("core", "core by", width=15, priority=4),
        Column("status", "status", width=6, priority=0, tones=TONES),
    ),
)


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """The command line of bench.latency gates."""
    out = Parser(prog=prog, description=(__doc__ or "").replace(PROG, prog))
    out.add_argument(
        "--layer", nargs="+", metavar="NAME", default=list(LAYERS), help=f"{', '.join(LAYERS)}: all unless given"
    )
    out.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="cpu unless given")
    kinds = "; ".join(f"{' '.join(dtypes)} on {device}" for device, dtypes in DTYPES.items())
    out.add_argument("--dtype", nargs="+", choices=("float32", "bfloat16", "float16", "float64"), help=kinds)
    out.add_argument("--json", metavar="PATH", help="append records there")
    add_output(out)
    return out


def plan(args: argparse.Namespace) -> Work:
    """A row for each arm of each cell."""
    check_device(args.device, ["cpu"])
    cells = gate_cells(args.layer, args.device, args.dtype)
    for cell in cells:
        cell.arms()
    path = Path(args.json) if args.json else None
    if path:
        # before anything is checked: a place that cannot be written
        records.append(path)
    return Work([section(cells, path)], result=result)


def result(printed: Sequence[Section]) -> str:
    """How many arms are right."""
    found = [row.values["status"] for section in printed for row in section.rows]
    return f"{found.count('right')} of {len(found)} arms are right."


def gate_cells(names: Sequence[str], device: str, dtypes: Sequence[str] | None = None) -> list[Any]:
    """What is checked: shapes outside, layers inside."""
    from headcount.bench.latency.cells import Cell

    return [
        Cell("layer", name, seq_len, batch_size, dtype, which, device, routing)
        for dtype in dtypes or DTYPES[device]
        for seq_len, batch_size, routing in SHAPES
        for which in ("forward", "both")
        for name in names
    ]


def section(
    cells: Sequence[Any],
    path: Path | None,
    enough: Callable[[], bool] = lambda: True,
    known: Sequence[dict] = (),
    on_lost: Callable[[], None] = lambda: None,
) -> Section:
    """The table of ``cells``, as long as there is time ``enough``; ``known`` records are not made again.

    Where an arm leaves the device unusable that is its cell's record, and ``on_lost`` is called.
    """
    below: list[str] = []
    return Section(TABLE, _rows(cells, path, enough, known, below, on_lost), below)


def _rows(cells, path, enough, known, below, on_lost) -> Iterator[Row]:
    from headcount.bench.latency.faults import DeviceLost

    done: dict[str, list[dict]] = {}
    for record in known:
        done.setdefault(record["cell"], []).append(record)
    for number, cell in enumerate(cells):
        if cell.key not in done and not enough():
            below.append(f"No time was left for {len(cells) - number} of {len(cells)} cells.")
            return
        found, is_lost = done.get(cell.key), False
        if found is None:
            try:
                found = list(check_cell(cell))
            except DeviceLost as lost:
                found, is_lost = [_lost(cell, lost)], True
            for record in found if path else ():
                records.append(path, record)
        if is_lost:
            on_lost()
        for record in found:
            failures = [f"{cell.key} {record['arm']}: {record['status']}"] if record["status"] != "right" else []
            yield Row(record["shown"], [], [record], failures)


def check_cell(cell: Any) -> Iterator[dict[str, Any]]:
    """A record for each arm; what fails is a status."""
    from headcount.bench.latency import clock
    from headcount.bench.latency.capture import side_stream
    from headcount.bench.latency.shared import Shared

    found = []
    with side_stream(cell.device):
        shared = Shared(cell, cell.config)
        for spec in cell.arms():
            _poison(cell.device)
            record, arm = clock.prepare(cell, spec, shared, {})
            beside = {"replay": None, "same": None}
            status = record["status"]
            if arm is not None:
                status, beside = _beside(cell, arm)
            found.append(_record(cell, spec, record, beside, status))
    yield from found


def _beside(cell: Any, arm: Any) -> tuple[str, dict[str, Any]]:
    """What else must hold of an arm whose results are right."""
    import torch

    from headcount.bench.latency.capture import NotCaptured, capture
    from headcount.bench.latency.faults import DeviceLost, lost, status_of
    from headcount.bench.latency.gate import replay_error
    from headcount.bench.latency.runs import tensors

    beside: dict[str, Any] = {"replay": None, "same": None}
    try:
        once, again = (tensors(arm.call(0)) for _ in range(2))
        beside["same"] = "yes" if all(map(torch.equal, once, again)) else "no"
        if cell.device == "cuda":
            beside["replay"] = replay_error(arm.run, capture(arm.call, 1, arm.sets))
    except NotCaptured as reason:
        # an arm that waits is right all the same
        return "right", beside | {"replay": f"none: {reason}"[:60]}
    except Exception as error:
        if lost(cell.device):
            raise DeviceLost(arm.name, status_of(error)) from error
        return status_of(error), beside
    stale = beside["replay"] is not None and not beside["replay"] <= arm.bound
    return "wrong: a replay on other inputs is not right" if stale else "right", beside


def _record(cell: Any, spec: Any, record: dict[str, Any], beside: dict[str, Any], status: str) -> dict[str, Any]:
    shown = {
        "layer": spec.name,
        "arm": spec.arm,
        "dtype": cell.dtype,
        "pass": cell.which,
        "seq_len": cell.seq_len,
        "routing": cell.routing,
        "error": _short(record["error"]),
        "bound": _short(record["bound"]),
        "choices": record["choices"] and record["choices"]["other"],
        "replay": _short(beside["replay"]),
        "same": beside["same"],
        "core": ", ".join(record["backends"] or ()) or None,
        "status": status,
    }
    return {"kind": KIND, "cell": cell.key, "arm": f"{spec.name} {spec.arm}", "status": status, "shown": shown}


def _lost(cell: Any, lost: Any) -> dict[str, Any]:
    name, _, arm = lost.label.rpartition(" ")
    shown = dict.fromkeys(column.key for column in TABLE.columns)
    shown |= {"layer": name, "arm": arm, "dtype": cell.dtype, "pass": cell.which, "seq_len": cell.seq_len}
    shown |= {"routing": cell.routing, "status": lost.status}
    return {"kind": KIND, "cell": cell.key, "arm": lost.label, "status": lost.status, "shown": shown}


def _short(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else f"{value:.0e}"


def _poison(device: str) -> None:
    """Fill memory and give it back: what an arm does not write is NaN from now on."""
    if device == "cuda":
        import torch

        torch.full((POISON_BYTES // 4,), float("nan"), device=device)
