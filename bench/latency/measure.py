"""Measure one timing case: check its implementations against the reference, time them interleaved, make records."""

import gc
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch

from headcount.bench import records
from headcount.bench.latency import correctness
from headcount.bench.latency.capture import NotCaptured, capture, side_stream
from headcount.bench.latency.case_tensors import CaseTensors
from headcount.bench.latency.device_errors import OUT_OF_MEMORY, DeviceLost, ImplFailed, format_status, is_lost
from headcount.bench.latency.implementations import ImplSpec
from headcount.bench.latency.roofline import Peaks, executed_work, roofline_bound_s, work
from headcount.bench.latency.runs import Run, make_run, tensors
from headcount.bench.latency.statistics import TRUSTED_BLOCKS, Ratio, paired_ratio, verdict
from headcount.bench.latency.timing import TimedCall, interleave
from headcount.bench.latency.timing_cases import TimingCase

TOGETHER = f"{OUT_OF_MEMORY} together with the other implementations"
POISON_BYTES = 2**28
"""Bytes that are filled with NaN before an implementation is checked on a GPU."""
RATIOS = {"to_mha": "mha", "to_inner": "mha-inner", "overhead": "mqa", "to_dense": "dense"}
"""Ratio -> role of the row that is its denominator. ``overhead`` is that of routing, over dense MQA."""

ROUTED = ("subject", "dense")

NO_PEAKS = Peaks(1.0, 1.0, "not measured")

NO_RATIOS = dict.fromkeys(
    ("noise_floor", "noise_floor_wall", *(f"{ratio}{part}" for ratio in RATIOS for part in ("", "_verdict", "_by")))
)
"""The fields of a record before anything is compared."""


def measure_case(
    case: TimingCase,
    peaks: Peaks,
    *,
    blocks: int,
    on_block: Callable[[int], None] = lambda block: None,
) -> Iterator[dict[str, Any]]:
    """Yield a record for each implementation: checked against the reference first, then timed with the others.

    Raises DeviceLost where one leaves the device unusable for this process.
    """
    with side_stream(case.device):
        shared = CaseTensors(case, case.config)
        prepared = [prepare(case, spec, shared) for spec in case.impls()]
        control = _time_together(case, prepared, blocks, on_block)
    fill_ratios([(record, impl) for record, impl in prepared if impl is not None], control)
    for record, impl in prepared:
        yield _finished(record, impl, case, peaks, blocks)
    del prepared, control, shared
    gc.collect()


def check_case(case: TimingCase) -> Iterator[dict[str, Any]]:
    """Yield the result of the correctness check of each implementation, without timing it.

    DeviceLost where one leaves the device unusable.
    """
    with side_stream(case.device):
        shared = CaseTensors(case, case.config)
        for spec in case.impls():
            if case.device == "cuda":
                # freed memory holds NaN, so that what an implementation does not write is NaN
                torch.full((POISON_BYTES // 4,), math.nan, device=case.device)
            record, impl = prepare(case, spec, shared)
            again = _check_again(case, impl) if impl else {"status": record["status"]}
            yield {
                "layer": spec.name,
                "implementation": spec.impl,
                "error": _short(record["error"]),
                "bound": _short(record["bound"]),
                "choices": record["choices"] and record["choices"]["other"],
                "core": ", ".join(record["backends"] or ()) or None,
                **again,
            }


def _check_again(case: TimingCase, impl: "TimedRun") -> dict[str, Any]:
    """Return the status of an implementation whose results agree: same bits in a second run, replay on other inputs."""
    found: dict[str, Any] = {"status": records.AGREES}
    try:
        once, again = (tensors(impl.call(0)) for _ in range(2))
        found["same"] = "yes" if all(map(torch.equal, once, again)) else "no"
        if case.device == "cuda":
            error = correctness.replay_error(impl.run, capture(impl.call, 1, impl.sets))
            found["replay"] = _short(error)
            if not error <= impl.bound:
                found["status"] = "wrong: a replay on other inputs is not right"
    except NotCaptured as reason:
        # an implementation that makes the host wait has no graph, and agrees all the same
        found["replay"] = f"none: {reason}"[:60]
    except Exception as error:
        if is_lost(case.device):
            raise DeviceLost(impl.name, format_status(error)) from error
        found["status"] = format_status(error)
    return found


def _short(value: float | None) -> str | None:
    return None if value is None else f"{value:.0e}"


class TimedRun(TimedCall):
    """An implementation to time, with the run that it calls."""

    def __init__(self, run: Run) -> None:
        super().__init__(run.label, run.call, run.sets)
        self.run = run
        self.peak_memory: int | None = None
        self.bound = math.inf
        self.replay_error: float | None = None


def failed_case(case: TimingCase, error: Exception, blocks: int) -> list[dict[str, Any]]:
    """Return a record for each implementation of a case that raised ``error``; one that lost the device is named."""
    found = []
    for spec in case.impls():
        status = format_status(error)
        if isinstance(error, DeviceLost):
            skipped = f"skipped: {error.label} left the device unusable"
            status = error.status if spec.label == error.label else skipped
        found.append(_finished(_begin(case, spec) | {"status": status}, None, case, NO_PEAKS, blocks))
    return found


def _begin(case: TimingCase, spec: ImplSpec) -> dict[str, Any]:
    """Return the fields of a record that are known before an implementation runs."""
    return {
        "layer": spec.name,
        "role": spec.role,
        "implementation": spec.impl,
        **dict.fromkeys(("implementation_used", "largest_share", "error", "bound", "choices", "backends")),
        **NO_RATIOS,
        "status": "timed",
        "work": work(case, spec),
        "executed": executed_work(case, spec),
    }


def prepare(case: TimingCase, spec: ImplSpec, shared: CaseTensors) -> tuple[dict[str, Any], "TimedRun | None"]:
    """Return the beginning of a record, and the implementation where it may be timed."""
    record = _begin(case, spec)
    try:
        if spec.role in ROUTED:
            record["largest_share"] = shared.largest_share
        run = make_run(case, spec, shared)
        checked = correctness.CorrectnessCheck(run).check()
        impl = TimedRun(run)
        # the check is short; whether the call fits into memory shows only at full size
        impl.peak_memory = _peak_memory(run, case.device)
    except Exception as error:
        status = format_status(error)
        if is_lost(case.device):
            raise DeviceLost(spec.label, status) from error
        return record | {"status": status}, None
    record["implementation_used"] = run.impl_used()
    record["backends"] = list(checked.backends)
    if checked.tokens:
        record["choices"] = {"tokens": checked.tokens, "clear": checked.clear, "other": checked.other}
    if checked.wrong:
        return record | {"status": checked.wrong}, None
    impl.bound = checked.bound
    return record | {"error": checked.error, "bound": checked.bound}, impl


def _peak_memory(run: Run, device: str) -> int | None:
    """Return the bytes that a call allocates at most; None on a CPU."""
    if device != "cuda":
        run.call(0)
        return None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run.call(0)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def _aa_control(prepared) -> TimedRun | None:
    """Return the A/A control: the first dense implementation, or the first of all, to be timed a second time."""
    left = [(record, impl) for record, impl in prepared if impl is not None]
    chosen = next((impl for record, impl in left if record["role"] != "subject"), left[0][1] if left else None)
    return TimedRun(chosen.run) if chosen else None


def _time_together(case: TimingCase, prepared: list, blocks: int, on_block: Callable[[int], None]) -> TimedRun | None:
    """Interleave the implementations that are left, without each that fails. Return the A/A control."""
    while control := _aa_control(prepared):
        impls = [impl for _, impl in prepared if impl is not None]
        for impl in impls:
            impl.wall_s, impl.gpu_s = [], []
        try:
            interleave(
                [*impls, control], blocks=blocks, device=case.device, on_block=on_block, on_captured=_check_replay
            )
            return control
        except ImplFailed as failed:
            status, blamed = failed.status, failed.impl
            if is_lost(case.device):
                raise DeviceLost(blamed.name, status) from failed
        if status == OUT_OF_MEMORY:
            # without the largest the others may fit
            status, blamed = TOGETHER, max(impls, key=lambda impl: impl.peak_memory or 0)
        i = next(i for i, (_, impl) in enumerate(prepared) if impl is not None and impl.run is blamed.run)
        prepared[i] = (prepared[i][0] | {"status": status}, None)
        gc.collect()
    return None


class WrongReplay(Exception):
    """A replayed graph gives another result than an eager call."""


def _check_replay(impl: TimedRun) -> None:
    impl.replay_error = correctness.replay_error(impl.run, impl.graph)
    # written so that a NaN is wrong
    if not impl.replay_error <= max(impl.bound, correctness.MIN_BOUND[impl.run.case.dtype]):
        raise WrongReplay(f"a replay on other inputs is off by {impl.replay_error:.1e}")


def _finished(
    record: dict[str, Any], impl: TimedRun | None, case: TimingCase, peaks: Peaks, blocks: int
) -> dict[str, Any]:
    done, executed = record.pop("work"), record.pop("executed")
    bound_s = roofline_bound_s(done.macs, done.elements * case.element_bytes, peaks)
    shape = {k: v for k, v in asdict(case).items() if k not in ("which", "requested")}
    found = {
        "kind": "latency",
        "cell": case.key,
        **shape,
        "pass": case.which,
        "again": bool(case.blocks),
        "tokens": case.tokens,
        **record,
        "macs": done.macs,
        "params": done.params,
        "active_params": done.active_params,
        "least_bytes": done.elements * case.element_bytes,
        "executed_macs": executed.macs,
        "executed_bytes": executed.elements * case.element_bytes,
        "timed_by": None,
        "wall_ms": [1000 * s for s in impl.wall_s] if impl else None,
        "gpu_ms": [1000 * s for s in impl.gpu_s] if impl and impl.gpu_s else None,
        "no_graph_because": impl.graph_reason if impl else None,
        "calls_per_block": impl.calls if impl else None,
        "replays_per_block": impl.replays if impl and impl.graph else None,
        "replay_error": impl.replay_error if impl else None,
        "sets": impl.sets if impl else None,
        "rotated_bytes": impl.run.rotated_bytes if impl else None,
        "peak_memory_bytes": impl.peak_memory if impl else None,
        "roofline_ms": 1000 * bound_s,
        "peaks": asdict(peaks),
        "blocks": blocks,
        "smoke": blocks < TRUSTED_BLOCKS,
    }
    return found | {"timed_by": records.timed_by(found) if impl else None}


def failures(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each row that is wrong or failed; one that does not fit into memory is neither."""
    bad = [row for row in rows if row["status"].startswith(("wrong", "failed"))]
    return [f"{row['layer']} {row['implementation']}: {row['status']}" for row in bad]


def fill_ratios(timed: Sequence[tuple[dict[str, Any], TimedCall]], control: TimedCall | None) -> None:
    """Fill the ratios of the records of ``timed`` implementations; ``control`` repeats one of them.

    A ratio is of replayed graphs where both have one, else of wall time, and is judged by the noise floor of its kind.
    """
    by_role = {record["role"]: impl for record, impl in timed if record["role"] != "subject"}
    noises = _noises(timed, control)
    for record, impl in timed:
        for key, by in (("noise_floor", _kind(impl, impl)), ("noise_floor_wall", records.WALL)):
            record[key] = asdict(noises[by]) if by in noises else None
        for key, role in RATIOS.items():
            other = by_role.get(role)
            if other is None or other is impl or record["role"] not in ROUTED:
                continue
            by = _kind(impl, other)
            ratio = paired_ratio(_samples(impl, by), _samples(other, by))
            record[key], record[f"{key}_by"] = asdict(ratio), by
            record[f"{key}_verdict"] = verdict(ratio, noises.get(by))


def _noises(timed: Sequence[tuple[dict[str, Any], TimedCall]], control: TimedCall | None) -> dict[str, Ratio]:
    """Return the control over its original, by wall time, and by graphs where both have one."""
    original = next((impl for _, impl in timed if control is not None and impl.name == control.name), None)
    if original is None:
        return {}
    kinds = {records.WALL, _kind(control, original)}
    return {by: paired_ratio(_samples(control, by), _samples(original, by)) for by in kinds}


def _kind(a: TimedCall, b: TimedCall) -> str:
    return records.GRAPH if a.graph is not None and b.graph is not None else records.WALL


def _samples(impl: TimedCall, by: str) -> list[float]:
    return impl.wall_s if by == records.WALL else impl.gpu_s
