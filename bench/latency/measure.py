"""Measure one timing case: check its implementations against the reference, time them interleaved, make records."""

import gc
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, supported_activities

from headcount.bench.latency import correctness, timing
from headcount.bench.latency.case_tensors import CaseTensors
from headcount.bench.latency.estimate import Peaks, bound_s, work
from headcount.bench.latency.implementations import ImplSpec
from headcount.bench.latency.runs import Run, make_run, tensors
from headcount.bench.latency.statistics import TRUSTED_BLOCKS, Ratio, paired_ratio, quantile, verdict
from headcount.bench.latency.timing_cases import TimingCase
from headcount.bench.records import AGREES, ROLES, TIMED, WALL, Environment, LatencyRecord

POISON_BYTES = 2**28
"""Bytes that are filled with NaN before an implementation is checked on a GPU."""
RATIOS = {"to_mha": "mha", "overhead": "mqa", "to_dense": "dense"}
"""Ratio -> role of the row that is its denominator. ``overhead`` is that of routing, over dense MQA."""
CASE_FIELDS = ("subject", "name", "seq_len", "batch_size", "dtype", "device", "routing", "which", "tokens")
"""Facts of a case that its records have too."""

STEPS = {True: ("prepare", "time", "profile"), False: ("prepare", "check again")}
"""Steps of a case whose seconds are recorded, by whether it is timed."""

PROFILED_ROLES = ("mqa", "dense")
"""Roles of the rows whose kernels are recorded beside those of the fastest implementation."""

L2_SHARE = 1.5
"""Least bytes that the calls of a block touch, as a multiple of the L2 cache."""


class DeviceLost(Exception):
    """The device no longer works in this process; the message names the implementation that ran, and its error."""


@dataclass(kw_only=True)
class TimedImpl(timing.TimedCall):
    """An implementation of a case: its correctness check and its samples.

    ``run`` is None where it is not timed, for ``status``. Fields of its record: ``checked`` has those of its check, and
    ``measured`` those of its calls, which are recorded where it is timed.
    """

    case: TimingCase
    spec: ImplSpec
    status: str = TIMED
    run: Run | None = None
    checked: dict[str, Any] = field(default_factory=dict)
    measured: dict[str, Any] = field(default_factory=dict)

    def record(self, peaks: Peaks | None, blocks: int, environ: Environment, **found: Any) -> LatencyRecord:
        """Return the record of this implementation with the fields ``found``, without ratios; without ``peaks`` it has
        no bound."""
        case, spec = self.case, self.spec
        needed, executed = work(case, spec.needed), work(case, spec.executed)
        if self.run:
            rotated_bytes = self.run.set_bytes * min(self.calls, self.sets)
            found |= {"calls_per_block": self.calls, "sets": self.sets, "rotated_bytes": rotated_bytes}
            found |= self.measured | self.samples()
        return LatencyRecord(
            cell=case.key,
            **{name: getattr(case, name) for name in CASE_FIELDS},
            blocks=blocks,
            again=bool(case.blocks),
            layer=spec.name,
            role=spec.role,
            implementation=spec.impl,
            status=self.status,
            macs=needed.macs,
            least_bytes=needed.bytes,
            executed_macs=executed.macs,
            executed_bytes=executed.bytes,
            smoke=blocks < TRUSTED_BLOCKS,
            environment=environ,
            roofline_ms=peaks and 1000 * bound_s(needed.macs, needed.bytes, peaks),
            peaks=peaks and asdict(peaks),
            **self.checked,
            **found,
        )

    def fail(self, error: BaseException) -> None:
        """Give the implementation up for ``error``. Raises DeviceLost where the device no longer works."""
        self.status, self.run, self.call, self.graph = timing.format_status(error), None, None, None
        if timing.is_lost(self.case.device):
            raise DeviceLost(f"{self.name}: {self.status}") from error


class Shared:
    """What the cases of a run share: weights of cases that follow one another, and checks of models."""

    def __init__(self) -> None:
        self._tensors: CaseTensors | None = None
        self._checks: dict[tuple, tuple[str, correctness.CheckResult]] = {}

    def tensors(self, case: TimingCase) -> CaseTensors:
        """Return the tensors of a case; the passes of a model that follow one another have the same."""
        if case.subject == "model":
            case = replace(case, which="forward", blocks=None)
        if self._tensors is None or self._tensors.case != case:
            self._tensors = CaseTensors(case, case.config, self._tensors)
        return self._tensors

    def check(self, run: Run) -> tuple[str, correctness.CheckResult]:
        """Return the case in which a run was checked, and the check.

        A model that is beside several others is checked once, and so are its lengths beyond those that a check reads.
        """
        case, spec = run.case, run.spec
        if case.subject == "layer":
            return case.key, correctness.CorrectnessCheck(run).check()
        key = (spec.config, spec.impl, case.which, case.dtype, case.device, correctness.checked_tokens(case))
        if key not in self._checks:
            self._checks[key] = case.key, correctness.CorrectnessCheck(run).check()
        return self._checks[key]


def measure_case(
    case: TimingCase,
    peaks: Peaks | None,
    *,
    environ: Environment,
    blocks: int,
    on_block: Callable[[int], None] = lambda block: None,
    shared: Shared | None = None,
) -> list[LatencyRecord]:
    """Return a record for each implementation: checked against the reference first, then timed with the others.

    Without ``blocks`` nothing is timed: each is checked once more. ``on_block`` is called after each block. ``shared``
    is what earlier cases made. Raises DeviceLost where an implementation leaves the device unusable for this process.
    """
    shared, control = shared or Shared(), None
    tensors = shared.tensors(case)
    # what the last case left; torch compiles a function for at most eight shapes
    torch.compiler.reset()
    gc.collect()
    # what stays: the collector, which runs before each capture, need not look at it
    gc.freeze()
    ends = [time.perf_counter()]
    with timing.side_stream(case.device):
        impls = [prepare(case, spec, tensors, shared) for spec in case.impls()]
        ends.append(time.perf_counter())
        if blocks:
            control = _time_together(
                impls, blocks=blocks, device=case.device, on_block=on_block, on_captured=_check_replay
            )
            ends.append(time.perf_counter())
            if case.blocks is None:
                _profile(impls)
        else:
            for impl in impls:
                _check_again(impl)
    ends.append(time.perf_counter())
    case_s = dict(zip(STEPS[bool(blocks)], (end - start for start, end in pairwise(ends)), strict=True))
    rows = [impl.record(peaks, blocks, environ, case_s=case_s) for impl in impls]
    return add_ratios(rows, control.record(peaks, blocks, environ)) if control else rows


def _profile(impls: Sequence[TimedImpl]) -> None:
    """Record the kernels of the fastest implementation and of the dense layer or model that it is compared with."""
    timed = [impl for impl in impls if impl.run]
    subjects = sorted((impl for impl in timed if impl.spec.role == "subject"), key=TimedImpl.median_s)
    for impl in (*subjects[:1], *(impl for impl in timed if impl.spec.role in PROFILED_ROLES)):
        impl.measured["kernels"] = profile_kernels(impl.call, impl.case.device)


def profile_kernels(call: Callable[[int], object], device: str) -> list[dict[str, Any]] | None:
    """Return the name, the calls and the microseconds of each kernel of one call, longest first.

    Kernels are those of the GPU; without one, operators of torch, each without those that it calls. None where the
    profiler sees nothing or fails: a row is as good without its kernels.
    """
    on_gpu = device == "cuda" and ProfilerActivity.CUDA in supported_activities()
    activity, kind = (ProfilerActivity.CUDA, DeviceType.CUDA) if on_gpu else (ProfilerActivity.CPU, DeviceType.CPU)
    # the profiler reports each start and stop on stderr, as its most severe level
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    try:
        with profile(activities=[activity], acc_events=True) as seen:
            call(0)
            timing.synchronize(device)
        events = [event for event in seen.key_averages() if event.device_type == kind]
    except RuntimeError:
        return None
    found = []
    for event in events:
        us = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        found.append({"name": event.key, "calls": event.count, "us": round(us, 3)})
    return sorted((kernel for kernel in found if kernel["us"] > 0), key=lambda kernel: -kernel["us"]) or None


def _check_again(impl: TimedImpl) -> None:
    """Check an implementation whose results agree once more: a second run, and a graph's replay on other inputs."""
    if impl.run is None:
        return
    impl.status = AGREES
    try:
        once, again = (tensors(impl.call(0)) for _ in range(2))
        impl.measured["has_same_bits"] = all(map(torch.equal, once, again))
        if impl.case.device == "cuda" and not _is_replayed(impl, timing.capture(impl.call, 1, impl.sets)):
            impl.status = "wrong: a replay on other inputs is not right"
    except timing.NotCaptured as reason:
        # an implementation that makes the host wait has no graph, and agrees all the same
        impl.graph_reason = str(reason)
    except Exception as error:
        impl.fail(error)


def prepare(case: TimingCase, spec: ImplSpec, tensors: CaseTensors, shared: Shared) -> TimedImpl:
    """Return the implementation with its correctness check, ready to be timed if that is passed."""
    impl = TimedImpl(spec.label, None, case=case, spec=spec)
    try:
        if case.device == "cuda":
            # freed memory holds NaN, so that what an implementation does not write is NaN
            torch.full((POISON_BYTES // 4,), math.nan, device=case.device)
        if spec.role in ROLES:
            impl.checked["largest_share"] = tensors.largest_share
        run = make_run(case, spec, tensors)
        checked_in, found = shared.check(run)
        # the check is short; whether the call fits into memory shows only at full size
        peak_memory = _peak_memory(run, case.device)
    except Exception as error:
        impl.fail(error)
        return impl
    impl.checked |= {
        "implementation_used": run.impl_used(),
        "checked_in": checked_in if checked_in != case.key else None,
        "backends": list(found.backends),
        "choices": found.choices if found.choices["tokens"] else None,
    }
    if found.wrong:
        impl.status = found.wrong
        return impl
    impl.checked |= {"error": found.error, "bound": found.bound}
    impl.measured["peak_memory_bytes"] = peak_memory
    impl.run, impl.call, impl.sets = run, run.call, run.sets
    impl.least_calls = _least_calls(run, peak_memory or 0, case.device)
    return impl


def _least_calls(run: Run, peak_memory: int, device: str) -> int:
    """Return the calls that together touch more than the L2 cache, at most one for each input set; 1 on a CPU.

    All calls touch the same weights and the same allocated memory, and each its own input set.
    """
    if device != "cuda":
        return 1
    cache = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
    weights = sum(parameter.nbytes for parameter in run.module.parameters())
    return max(1, min(run.sets, math.ceil((L2_SHARE * cache - weights - peak_memory) / run.set_bytes)))


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


def _time_together(impls: list[TimedImpl], *, device: str, **how: Any) -> TimedImpl | None:
    """Interleave the implementations that can be timed, denominators of ratios first, and drop each that fails.

    Return the A/A control: the first dense implementation, or the first of all, timed a second time.
    """
    # a failed capture ends all later ones of the process
    impls = sorted(impls, key=lambda impl: impl.spec.role == "subject")
    while left := [impl for impl in impls if impl.run]:
        control = replace(left[0], measured=dict(left[0].measured))
        try:
            timing.interleave([left[0], control, *left[1:]], device=device, **how)
            return control
        except timing.ImplFailed as failed:
            # the control has the same run
            impl = next(impl for impl in left if impl.run is failed.impl.run)
            together = timing.format_status(failed.__cause__) == timing.OUT_OF_MEMORY
            if together:
                # without the largest the others may fit
                impl = max(left, key=lambda impl: impl.measured["peak_memory_bytes"] or 0)
            impl.fail(failed.__cause__)
            if together:
                impl.status = f"{timing.OUT_OF_MEMORY} together with the other implementations"
        # free what the implementation holds
        del left, control
        gc.collect()
    return None


def _is_replayed(impl: TimedImpl, graph: timing.Capture) -> bool:
    """Record the error of a replay on other inputs, and return whether it is allowed; NaN is not."""
    error = impl.measured["replay_error"] = correctness.replay_error(impl.run, graph)
    return error <= correctness.replay_bound(impl.case, impl.checked["bound"])


def _check_replay(impl: TimedImpl) -> None:
    if not _is_replayed(impl, impl.graph):
        raise RuntimeError(f"a replay on other inputs is off by {impl.measured['replay_error']:.1e}")


def add_ratios(rows: Sequence[LatencyRecord], control: LatencyRecord) -> list[LatencyRecord]:
    """Return the records of a case with their ratios; ``control`` is that of a repeated implementation.

    A ratio is of replayed graphs where both have one, else of wall time, and is judged by the noise floor of its kind;
    of wall time there is none where it was measured in fewer blocks.
    Of dense layers with several implementations the fastest is the denominator.
    """
    timed = [row for row in rows if row.wall_ms]
    slowest_first = sorted(timed, key=lambda row: quantile(row.samples(), 0.5), reverse=True)
    by_role = {row.role: row for row in slowest_first if row.role != "subject"}
    repeated = next(row for row in timed if (row.layer, row.implementation) == (control.layer, control.implementation))
    kinds = {WALL, control.common_timing(repeated)}
    noises = {by: _ratio(control, repeated, by) for by in kinds if len(control.samples(by)) == len(control.samples())}
    return [replace(row, **_ratios(row, by_role, noises)) if row.wall_ms else row for row in rows]


def _ratios(row: LatencyRecord, by_role: Mapping[str, LatencyRecord], noises: Mapping[str, Ratio]) -> dict[str, Any]:
    """Return the noise floors of a timed row, and its ratios with how they compare and their verdicts, by field."""
    floors = {"noise_floor": noises.get(row.common_timing(row)), "noise_floor_wall": noises.get(WALL)}
    found: dict[str, Any] = {key: asdict(noise) for key, noise in floors.items() if noise}
    for key, role in RATIOS.items():
        other = by_role.get(role)
        if row.role in ROLES and other is not None and other is not row:
            by = row.common_timing(other)
            ratio = _ratio(row, other, by)
            found |= {key: asdict(ratio), f"{key}_by": by, f"{key}_verdict": verdict(ratio, noises.get(by))}
    return found


def _ratio(a: LatencyRecord, b: LatencyRecord, by: str) -> Ratio:
    return paired_ratio(a.samples(by), b.samples(by))
