"""One cell measured: its arms checked against the reference, interleaved, and summed up as records."""

import gc
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch

from headcount.bench.latency import bounds, gate, like, ratios
from headcount.bench.latency.arms import ArmSpec
from headcount.bench.latency.capture import side_stream
from headcount.bench.latency.cells import Cell
from headcount.bench.latency.faults import OUT_OF_MEMORY, ArmFailed, DeviceLost, lost, status_of
from headcount.bench.latency.roofline import Peaks, executed_work, floor_s, work
from headcount.bench.latency.runs import Run, make_run
from headcount.bench.latency.shared import Shared
from headcount.bench.latency.statistics import TRUSTED_BLOCKS
from headcount.bench.latency.timing import Arm, interleave

BESIDE = f"{OUT_OF_MEMORY} beside the other arms"


def measure_cell(
    cell: Cell,
    peaks: Peaks,
    *,
    blocks: int,
    on_block: Callable[[int], None] = lambda block: None,
    known: Mapping[str, str] | None = None,
) -> Iterator[dict[str, Any]]:
    """A record for each arm: checked against the reference first, then timed beside the others.

    ``known`` holds the status of arms, by label, that are not to be run again. Raises DeviceLost where an arm leaves
    the device unusable for this process.
    """
    with side_stream(cell.device):
        shared = Shared(cell, cell.config)
        prepared = [prepare(cell, spec, shared, known or {}) for spec in cell.arms()]
        twin = _time_together(cell, prepared, blocks, on_block)
    ratios.compare([(record, arm) for record, arm in prepared if arm is not None], twin)
    for record, arm in prepared:
        yield _finished(record, arm, cell, peaks, blocks)
    del prepared, twin, shared
    gc.collect()


class Timed(Arm):
    """An arm with the run that it calls."""

    def __init__(self, run: Run) -> None:
        super().__init__(run.label, run.call, run.sets)
        self.run = run
        self.peak_memory: int | None = None
        self.bound = math.inf
        self.replay_error: float | None = None


def prepare(
    cell: Cell, spec: ArmSpec, shared: Shared, known: Mapping[str, str]
) -> tuple[dict[str, Any], "Timed | None"]:
    """The beginning of an arm's record, and the arm where it may be timed."""
    label = f"{spec.name} {spec.arm}"
    record = {
        "arm": spec.name,
        "role": spec.role,
        "implementation": spec.arm,
        "implementation_used": None,
        "largest_share": None,
        "error": None,
        "bound": None,
        "choices": None,
        "backends": None,
        **ratios.NONE,
        "status": "timed",
        "work": work(cell, spec),
        "executed": executed_work(cell, spec),
    }
    if label in known:
        return record | {"status": known[label]}, None
    try:
        if spec.role in ratios.ROUTED:
            record["largest_share"] = shared.largest_share
        run = make_run(cell, spec, shared)
        checked = gate.Gate(run).check()
        arm = Timed(run)
        # The check is short; whether the whole cell fits shows only at full size.
        arm.peak_memory = _peak_memory(run, cell.device)
    except Exception as error:
        status = status_of(error)
        if lost(cell.device):
            raise DeviceLost(label, status) from error
        return record | {"status": status}, None
    record["implementation_used"] = run.arm_used()
    record["backends"] = list(checked.backends)
    if checked.tokens:
        record["choices"] = {"tokens": checked.tokens, "clear": checked.clear, "other": checked.other}
    if checked.wrong:
        return record | {"status": checked.wrong}, None
    arm.bound = checked.bound
    return record | {"error": checked.error, "bound": checked.bound}, arm


def _peak_memory(run: Run, device: str) -> int | None:
    """Bytes that a call takes beyond what was there before; None where nobody counts."""
    if device != "cuda":
        run.call(0)
        return None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run.call(0)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def _twin(prepared) -> Timed | None:
    """The first dense arm once more, or the first arm: the same code timed twice."""
    left = [(record, arm) for record, arm in prepared if arm is not None]
    chosen = next((arm for record, arm in left if record["role"] != "subject"), left[0][1] if left else None)
    return Timed(chosen.run) if chosen else None


def _time_together(cell: Cell, prepared: list, blocks: int, on_block: Callable[[int], None]) -> Timed | None:
    """Interleave the arms that are left, without each that fails; its record then says why. The twin."""
    while twin := _twin(prepared):
        arms = [arm for _, arm in prepared if arm is not None]
        for arm in arms:
            arm.wall_s, arm.gpu_s = [], []
        try:
            interleave([*arms, twin], blocks=blocks, device=cell.device, on_block=on_block, on_captured=_check_replay)
            return twin
        except ArmFailed as failed:
            status, blamed = failed.status, failed.arm
            if lost(cell.device):
                raise DeviceLost(blamed.name, status) from failed
        if status == OUT_OF_MEMORY:
            # one less may do for the others: the largest
            status, blamed = BESIDE, max(arms, key=lambda arm: arm.peak_memory or 0)
        i = next(i for i, (_, arm) in enumerate(prepared) if arm is not None and arm.run is blamed.run)
        prepared[i] = (prepared[i][0] | {"status": status}, None)
        gc.collect()
    return None


class WrongReplay(Exception):
    """A replayed graph does not give what an eager call gives."""


def _check_replay(arm: Timed) -> None:
    arm.replay_error = gate.replay_error(arm.run, arm.graph)
    # written so that a NaN is wrong
    if not arm.replay_error <= max(arm.bound, bounds.FLOOR[arm.run.cell.dtype]):
        raise WrongReplay(f"a replay on other inputs is off by {arm.replay_error:.1e}")


def _finished(record: dict[str, Any], arm: Timed | None, cell: Cell, peaks: Peaks, blocks: int) -> dict[str, Any]:
    done, executed = record.pop("work"), record.pop("executed")
    floor = floor_s(done.macs, done.elements * cell.element_bytes, peaks)
    shape = {k: v for k, v in asdict(cell).items() if k not in ("which", "asked")}
    found = {
        "kind": "latency",
        "cell": cell.key,
        **shape,
        "pass": cell.which,
        "again": bool(cell.blocks),
        "tokens": cell.tokens,
        **record,
        "macs": done.macs,
        "params": done.params,
        "active_params": done.active_params,
        "least_bytes": done.elements * cell.element_bytes,
        "executed_macs": executed.macs,
        "executed_bytes": executed.elements * cell.element_bytes,
        "timed_by": None,
        "wall_ms": [1000 * s for s in arm.wall_s] if arm else None,
        "gpu_ms": [1000 * s for s in arm.gpu_s] if arm and arm.gpu_s else None,
        "no_graph_because": arm.graph_reason if arm else None,
        "calls_per_block": arm.calls if arm else None,
        "replays_per_block": arm.replays if arm and arm.graph else None,
        "replay_error": arm.replay_error if arm else None,
        "sets": arm.sets if arm else None,
        "rotated_bytes": arm.run.rotated_bytes if arm else None,
        "peak_memory_bytes": arm.peak_memory if arm else None,
        "floor_ms": 1000 * floor,
        "peaks": peaks.as_dict(),
        "blocks": blocks,
        "smoke": blocks < TRUSTED_BLOCKS,
    }
    return found | {"timed_by": like.timed_by(found) if arm else None}


def statuses(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line for each arm that was wrong or failed; one that does not fit is neither."""
    bad = [r for r in records if r["status"].startswith(("wrong", "failed"))]
    return [f"{r['arm']} {r['implementation']}: {r['status']}" for r in bad]
