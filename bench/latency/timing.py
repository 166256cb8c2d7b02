"""Timing arms against one another: interleaved in ABBA blocks in one process, wall time and GPU time apart."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from headcount.bench.latency.capture import Capture, NotCaptured, capture, elapsed_s
from headcount.bench.latency.faults import ArmFailed, status_of

WARM_UP_S = {"cpu": 0.2, "cuda": 0.05}
CELL_WARM_UP_S = {"cpu": 0.0, "cuda": 0.3}
"""Before an arm is timed, and once more before the first: clocks climb while nothing runs long enough."""
BLOCK_S = {"cpu": 0.02, "cuda": 0.002}
"""The least time that an arm runs in a block, so that the clock's own grain does not show."""
MOST_CALLS = 1000


@dataclass
class Arm:
    """Something to time: ``call(i)`` runs it once on input set ``i`` of ``sets``, the arm takes them in turn.

    ``gpu_s`` is of ``replays`` of ``graph``, or of eager calls between events where ``graph_reason`` says why there is
    none.
    """

    name: str
    call: Callable[[int], object]
    sets: int = 1
    wall_s: list[float] = field(default_factory=list)
    gpu_s: list[float] = field(default_factory=list)
    calls: int = 1
    replays: int = 1
    graph: Capture | None = None
    graph_reason: str | None = None
    turn: int = 0

    def run_block(self) -> None:
        """``calls`` calls, on from the set that comes next."""
        for _ in range(self.calls):
            self.call(self.turn % self.sets)
            self.turn += 1


def interleave(
    arms: Sequence[Arm],
    *,
    blocks: int,
    device: str,
    on_block: Callable[[int], None] = lambda block: None,
    on_captured: Callable[[Arm], None] = lambda arm: None,
    clock: Callable[[], float] | None = None,
) -> None:
    """Fill each arm's samples: one per block, in seconds per call.

    Odd blocks run the arms in reverse (A B, B A, …), so that a steady drift falls on all alike. On cuda each block also
    times replays of a graph by events, or eager calls where an arm cannot be captured; one block before the first is
    thrown away. ``on_captured`` is told of each new graph before anything is timed. Raises ArmFailed naming the arm.
    """
    clock = clock or time.perf_counter
    for number, arm in enumerate(arms):
        with _blamed(arm):
            _prepare(arm, device, clock, WARM_UP_S[device] + (CELL_WARM_UP_S[device] if number == 0 else 0.0))
            if arm.graph is not None:
                on_captured(arm)
    # a new graph empties the cache of memory, which the next eager calls pay for
    for block in range(-1 if device == "cuda" else 0, blocks):
        for arm in arms if block % 2 == 0 else reversed(arms):
            with _blamed(arm):
                wall_s = _wall(arm, device, clock)
                gpu_s = _gpu(arm) if device == "cuda" else None
            if block >= 0:
                arm.wall_s.append(wall_s)
                if gpu_s is not None:
                    arm.gpu_s.append(gpu_s)
        if block >= 0:
            on_block(block)


@contextmanager
def _blamed(arm: Arm) -> Iterator[None]:
    try:
        yield
    except ArmFailed:
        raise
    except Exception as error:
        raise ArmFailed(arm, status_of(error)) from error


def _prepare(arm: Arm, device: str, clock, warm_up_s: float) -> None:
    """Warm up, and find how many calls fill a block."""
    took, started = [], clock()
    while len(took) < 2 or clock() - started < warm_up_s:
        before = clock()
        arm.call(len(took) % arm.sets)
        _synchronize(device)
        took.append(clock() - before)
    # the first calls load modules and plan
    per_call = sorted(took[-3:])[len(took[-3:]) // 2]
    arm.calls = max(1, min(MOST_CALLS, round(BLOCK_S[device] / per_call))) if per_call > 0 else 1
    if arm.calls > arm.sets:
        # every set as often as the others
        arm.calls = arm.sets * round(arm.calls / arm.sets)
    if device == "cuda":
        _capture(arm)


def _capture(arm: Arm) -> None:
    try:
        arm.graph = capture(arm.call, arm.calls, arm.sets)
    except NotCaptured as reason:
        arm.graph_reason = str(reason)
        return
    once = elapsed_s(arm.graph.replay)
    arm.replays = max(1, math.ceil(BLOCK_S["cuda"] / once)) if once > 0 else 1


def _wall(arm: Arm, device: str, clock) -> float:
    _synchronize(device)
    started = clock()
    arm.run_block()
    _synchronize(device)
    return (clock() - started) / arm.calls


def _gpu(arm: Arm) -> float:
    if arm.graph is None:
        return elapsed_s(arm.run_block) / arm.calls

    def replays() -> None:
        for _ in range(arm.replays):
            arm.graph.replay()

    return elapsed_s(replays) / (arm.graph.calls * arm.replays)


def _synchronize(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.synchronize()
