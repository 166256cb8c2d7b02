"""One cell measured: its arms checked against the reference, interleaved, and summed up as records."""

import gc
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import torch

from headcount.bench.case import ledger_of, with_attention
from headcount.bench.latency import statistics
from headcount.bench.latency.arms import ArmSpec
from headcount.bench.latency.cells import DTYPES, ROTATED_BYTES, TOLERANCE, Cell
from headcount.bench.latency.roofline import Peaks, floor_s, least_bytes, pass_macs
from headcount.bench.latency.runs import Run, layer_run, model_run
from headcount.bench.latency.timing import Arm, interleave
from headcount.formulas.ledger import Ledger

RATIOS = {"to_mha": "mha", "to_inner": "mha-inner", "tax": "mqa", "to_dense": "dense"}
"""The ratios of an arm that routes, and the role of the arm that each is over."""

ROUTED = ("subject", "dense")

TRUSTED_BLOCKS = 20
"""Fewer blocks than this are a smoke test: their figures enter no document."""


def measure_cell(
    cell: Cell, peaks: Peaks, *, blocks: int, on_block: Callable[[int], None] = lambda block: None
) -> Iterator[dict[str, Any]]:
    """A record for each arm: checked against the float64 reference first, then timed beside the others."""
    specs = cell.arms()
    prepared = [_prepare(cell, spec) for spec in specs]
    timed = [(record, arm) for record, arm in prepared if arm is not None]
    twin = _twin(specs, prepared)
    if timed:
        sets = _sets(cell, timed[0][1].run)
        arms = [arm for _, arm in timed] + ([twin] if twin else [])
        try:
            with _memory_errors(cell.device):
                _interleave(arms, blocks, sets, cell.device, on_block)
        except OutOfMemory:
            prepared = [(record | {"status": "out of memory beside the other arms"}, None) for record, _ in prepared]
            timed, twin = [], None
    _compare(timed, twin)
    for record, arm in prepared:
        yield _finished(record, arm, cell, peaks, blocks)
    del prepared, timed, twin
    gc.collect()


class _Timed(Arm):
    """An arm with the run that it calls."""

    def __init__(self, run: Run) -> None:
        super().__init__(run.label, run.call)
        self.run = run
        self.peak_memory: int | None = None


def _prepare(cell: Cell, spec: ArmSpec) -> tuple[dict[str, Any], _Timed | None]:
    lengths = _lengths(cell, spec)
    # What packed heads need is what the ideal form counts, whatever else they do beside.
    config = with_attention(spec.config, form=spec.form) if spec.form else spec.config
    ledger = ledger_of(config, lengths)
    record = {
        "arm": spec.name,
        "role": spec.role,
        "implementation": spec.arm,
        "implementation_used": None,
        "largest_share": None,
        "error": None,
        "noise": None,
        **dict.fromkeys(key for ratio in RATIOS for key in (ratio, f"{ratio}_verdict")),
        "macs": pass_macs(ledger, cell.which),
        "params": ledger.params,
        "active_params": ledger.active_params,
        "status": "timed",
        "ledger": ledger,
    }
    try:
        with _memory_errors(cell.device):
            run = (layer_run if cell.subject == "layer" else model_run)(cell, spec)
            error = run.error()
            # The check is short; whether the whole cell fits shows only at full size.
            run.call(0)
            record["implementation_used"] = run.arm_used()
            record["largest_share"] = run.largest_share
    except OutOfMemory:
        return record | {"status": "out of memory"}, None
    if not error <= TOLERANCE[cell.dtype]:
        return record | {"status": f"wrong: relative error {error:.1e}"}, None
    record["error"] = error
    return record, _Timed(run)


class OutOfMemory(Exception):
    """An arm does not fit."""


@contextmanager
def _memory_errors(device: str):
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise OutOfMemory from error
    except RuntimeError as error:
        if "can't allocate memory" not in str(error) and "out of memory" not in str(error):
            raise
        raise OutOfMemory from error


def _lengths(cell: Cell, spec: ArmSpec) -> dict[str, int]:
    if cell.subject == "layer":
        tgt_len = 1 if cell.which == "decode" else cell.seq_len
        return {"batch_size": cell.batch_size, "tgt_len": tgt_len, "src_len": cell.seq_len}
    names = [name for name in spec.config.lengths if name != "batch_size"]
    return {"batch_size": cell.batch_size, **dict.fromkeys(names, cell.seq_len)}


def _twin(specs: Sequence[ArmSpec], prepared) -> _Timed | None:
    """The first dense arm once more, or the first arm: the same code timed twice."""
    order = sorted(range(len(specs)), key=lambda i: specs[i].role == "subject")
    for i in order:
        if prepared[i][1] is not None:
            return _Timed(prepared[i][1].run)
    return None


def _sets(cell: Cell, run: Run) -> int:
    return max(2, min(len(run.inputs), math.ceil(ROTATED_BYTES[cell.device] / run.input_bytes)))


def _interleave(arms, blocks, sets, device, on_block) -> None:
    if device == "cuda":
        for arm in arms:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            arm.call(0)
            torch.cuda.synchronize()
            arm.peak_memory = torch.cuda.max_memory_allocated() - before
    interleave(arms, blocks=blocks, sets=sets, device=device, on_block=on_block)


def _samples(arm: Arm) -> list[float]:
    return arm.gpu_s or arm.wall_s


def _compare(timed, twin) -> None:
    """Ratios block by block: to each dense arm, and the noise of the same code timed twice."""
    by_role = {record["role"]: arm for record, arm in timed if record["role"] != "subject"}
    noise = None
    if twin:
        original = next(arm for _, arm in timed if arm.run is twin.run)
        noise = statistics.paired_ratio(_samples(twin), _samples(original))
    for record, arm in timed:
        record["noise"] = asdict(noise) if noise else None
        for key, role in RATIOS.items():
            other = by_role.get(role)
            if other is None or other is arm or record["role"] not in ROUTED:
                continue
            ratio = statistics.paired_ratio(_samples(arm), _samples(other))
            record[key], record[f"{key}_verdict"] = asdict(ratio), statistics.verdict(ratio, noise)


def _finished(record: dict[str, Any], arm: _Timed | None, cell: Cell, peaks: Peaks, blocks: int) -> dict[str, Any]:
    ledger: Ledger = record.pop("ledger")
    width = cell.batch_size * cell.seq_len
    element = torch.empty((), dtype=DTYPES[cell.dtype]).element_size()
    activations = 2 * width * _width(ledger) if cell.subject == "layer" else 0
    floor = floor_s(record["macs"], least_bytes(ledger, cell.which, activations, element), peaks)
    shape = {k: v for k, v in asdict(cell).items() if k not in ("which", "asked")}
    return {
        "kind": "latency",
        "cell": cell.key,
        **shape,
        "pass": cell.which,
        "tokens": width if cell.which != "decode" else cell.batch_size,
        **record,
        "wall_ms": [1000 * s for s in arm.wall_s] if arm else None,
        "gpu_ms": [1000 * s for s in arm.gpu_s] if arm and arm.gpu_s else None,
        "no_graph_because": arm.graph_reason if arm else None,
        "calls_per_block": arm.calls if arm else None,
        "peak_memory_bytes": arm.peak_memory if arm else None,
        "floor_ms": 1000 * floor,
        "peaks": peaks.as_dict(),
        "blocks": blocks,
        "smoke": blocks < TRUSTED_BLOCKS,
    }


def _width(ledger: Ledger) -> int:
    return next(entry.dims["d_m"] for entry in ledger if "d_m" in entry.dims)
