"""Timing arms against one another: interleaved in ABBA blocks in one process, wall time and GPU time apart."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

WARM_UP_S = 0.2
BLOCK_S = {"cpu": 0.02, "cuda": 0.002}
"""The least time that an arm runs in a block, so that the clock's own grain does not show."""


@dataclass
class Arm:
    """Something to time: ``call(i)`` runs it once on input set ``i``."""

    name: str
    call: Callable[[int], object]
    wall_s: list[float] = field(default_factory=list)
    gpu_s: list[float] = field(default_factory=list)
    calls: int = 1
    graph: object = None
    graph_reason: str | None = None


def interleave(
    arms: Sequence[Arm],
    *,
    blocks: int,
    sets: int,
    device: str,
    on_block: Callable[[int], None] = lambda block: None,
    clock: Callable[[], float] = time.perf_counter,
) -> None:
    """Fill each arm's samples: one per block, in seconds per call.

    Odd blocks run the arms in reverse (A B, B A, …), so that a steady drift falls on all alike. Input sets
    rotate. On cuda each block also times a replayed graph by events, or eager calls where an arm cannot be
    captured; ``graph_reason`` then says why.
    """
    for arm in arms:
        _prepare(arm, sets, device, clock)
    for block in range(blocks):
        for arm in arms if block % 2 == 0 else reversed(arms):
            arm.wall_s.append(_wall(arm, sets, device, clock))
            if device == "cuda":
                arm.gpu_s.append(_gpu(arm, sets))
        on_block(block)


def _prepare(arm: Arm, sets: int, device: str, clock) -> None:
    """Warm up, and find how many calls fill a block."""
    done, started = 0, clock()
    while done < 2 or clock() - started < WARM_UP_S:
        arm.call(done % sets)
        _synchronize(device)
        done += 1
    per_call = (clock() - started) / done
    arm.calls = max(1, min(1000, round(BLOCK_S[device] / per_call))) if per_call > 0 else 1
    if device == "cuda":
        _capture(arm, sets)


def _wall(arm: Arm, sets: int, device: str, clock) -> float:
    _synchronize(device)
    started = clock()
    for i in range(arm.calls):
        arm.call(i % sets)
    _synchronize(device)
    return (clock() - started) / arm.calls


def _capture(arm: Arm, sets: int) -> None:
    arm.calls = max(arm.calls, sets)
    mode = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        arm.call(0)
    except RuntimeError as error:
        # An arm that makes the host wait cannot be captured, and trying would invalidate the capture.
        arm.graph_reason = str(error).splitlines()[0]
        return
    finally:
        torch.cuda.set_sync_debug_mode(mode)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    try:
        with torch.cuda.stream(stream):
            arm.call(0)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(arm.calls):
                arm.call(i % sets)
        arm.graph = graph
    except RuntimeError as error:
        torch.cuda.synchronize()
        arm.graph_reason = str(error).splitlines()[0]


def _gpu(arm: Arm, sets: int) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    begin.record()
    if arm.graph is not None:
        arm.graph.replay()
    else:
        for i in range(arm.calls):
            arm.call(i % sets)
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1000 / arm.calls


def _synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
