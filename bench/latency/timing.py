"""Time implementations interleaved in ABBA blocks in one process, by wall time and by GPU time."""

import gc
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median_high
from typing import Any

import torch

WARM_UP_S = {"cpu": 0.2, "cuda": 0.05}
CASE_WARM_UP_S = {"cpu": 0.0, "cuda": 0.3}
"""Seconds of warm-up of each implementation, and in addition of the first of a case, because clocks rise from idle."""
BLOCK_S = {"cpu": 0.02, "cuda": 0.002}
"""Seconds that an implementation runs in a block at least, well above the clock's resolution."""
MOST_CALLS = 1000
WALL_BLOCKS = 3
"""Blocks of eager calls where every call has a graph: then the times of graphs are compared."""
OUT_OF_MEMORY = "out of memory"
LONGEST = 200
"""Characters of a status at most."""
SLEEP_CYCLES = 2_000_000
"""Cycles of a kernel that spins for about a millisecond, so that launches queue before the first event."""

capture_failures: list[str] = []
"""Why this process captures no more graphs; empty where it does. A failed capture may leave its memory pool open."""


class ImplFailed(Exception):
    """The implementation ``impl`` could not be timed; ``status`` is that of its row."""

    def __init__(self, impl: "TimedCall", status: str) -> None:
        super().__init__(f"{impl.name}: {status}")
        self.impl = impl


def format_status(error: BaseException) -> str:
    """Return ``out of memory``, or ``failed: TYPE: first line``."""
    message = str(error).strip()
    if isinstance(error, MemoryError) or "out of memory" in message or "can't allocate memory" in message:
        return OUT_OF_MEMORY
    return f"failed: {type(error).__name__}: {message.splitlines()[0] if message else 'no message'}"[:LONGEST]


class Capture:
    """A graph of several calls; ``output`` is the result of the last one, on input set ``last``."""

    def __init__(self, graph: Any, last: int, output: Any) -> None:
        self.graph, self.last, self.output = graph, last, output

    def replay(self, times: int = 1) -> None:
        """Run all calls again on the present values of their inputs."""
        for _ in range(times):
            self.graph.replay()


class NotCaptured(Exception):
    """A call cannot be captured; the message is the reason."""


@dataclass
class TimedCall:
    """A call to time, and its samples: ``call(i)`` runs it once on input set ``i`` of ``sets``, taken in turn.

    ``gpu_s`` is of ``replays`` of ``graph``, or of eager calls between events where there is no graph, for
    ``graph_reason``. A block has ``least_calls`` at least.
    """

    name: str
    call: Callable[[int], object]
    sets: int = 1
    least_calls: int = 1
    wall_s: list[float] = field(default_factory=list)
    gpu_s: list[float] = field(default_factory=list)
    calls: int = 1
    replays: int = 1
    graph: Capture | None = None
    graph_reason: str | None = None
    turn: int = 0

    def run_block(self) -> None:
        """Run ``calls`` calls on the next input sets."""
        for _ in range(self.calls):
            self.call(self.turn % self.sets)
            self.turn += 1

    def median_s(self) -> float:
        """Return the median seconds of a call, of the GPU's time where that was measured."""
        return median_high(self.gpu_s or self.wall_s)

    def samples(self) -> dict[str, Any]:
        """Return the milliseconds of each block, and why there is no graph, by the keys of records."""
        return {
            "wall_ms": [1000 * s for s in self.wall_s] or None,
            "gpu_ms": [1000 * s for s in self.gpu_s] or None,
            "no_graph_because": self.graph_reason,
        }


def interleave(
    impls: Sequence[TimedCall],
    *,
    blocks: int,
    device: str,
    on_block: Callable[[int], None] = lambda block: None,
    on_captured: Callable[[TimedCall], None] = lambda impl: None,
) -> None:
    """Fill the samples of each implementation: one per block, in seconds per call.

    Odd blocks run in reverse order (A B, B A, …), so that a steady drift affects all alike. On cuda each block times
    replays of a graph by events, or eager calls where there is no graph, and wall time where it is compared, else in
    WALL_BLOCKS; one block before the first is discarded. ``on_captured`` is called for each new graph before anything
    is timed. Raises ImplFailed with the implementation.
    """
    try:
        for number, impl in enumerate(impls):
            _prepare(impl, device, WARM_UP_S[device] + (CASE_WARM_UP_S[device] if number == 0 else 0.0))
            if device == "cuda" and _capture(impl):
                on_captured(impl)
        wall_blocks = WALL_BLOCKS if all(impl.graph for impl in impls) else blocks
        # a new graph empties the memory cache, and the next eager calls allocate again
        for block in range(-1 if device == "cuda" else 0, blocks):
            for impl in impls if block % 2 == 0 else reversed(impls):
                wall = [wall_s(impl.run_block, device) / impl.calls] if block < wall_blocks else []
                gpu = [_gpu(impl)] if device == "cuda" else []
                if block >= 0:
                    impl.wall_s += wall
                    impl.gpu_s += gpu
            if block >= 0:
                on_block(block)
    except Exception as error:
        raise ImplFailed(impl, format_status(error)) from error


def _prepare(impl: TimedCall, device: str, warm_up_s: float) -> None:
    """Warm up, set the number of calls of a block, and leave out the samples of an earlier time."""
    impl.wall_s, impl.gpu_s = [], []
    # the first call compiles, loads modules and selects kernels
    impl.call(0)
    synchronize(device)
    took, started = [], time.perf_counter()
    while len(took) < 2 or time.perf_counter() - started < warm_up_s:
        took.append(wall_s(lambda: impl.call(len(took) % impl.sets), device))
    per_call = median_high(took[-3:])
    calls = min(MOST_CALLS, round(BLOCK_S[device] / per_call)) if per_call > 0 else 1
    impl.calls = max(calls, impl.least_calls)
    if impl.calls > impl.sets:
        # every input set equally often
        impl.calls = impl.sets * round(impl.calls / impl.sets)


def _capture(impl: TimedCall) -> bool:
    """Set the graph, or the reason why there is none. Return whether there is a graph."""
    try:
        impl.graph, impl.graph_reason = capture(impl.call, impl.calls, impl.sets), None
    except NotCaptured as reason:
        impl.graph, impl.graph_reason = None, str(reason)
        return False
    once = elapsed_s(impl.graph.replay)
    impl.replays = max(1, math.ceil(BLOCK_S["cuda"] / once)) if once > 0 else 1
    return True


def _gpu(impl: TimedCall) -> float:
    if impl.graph is None:
        return elapsed_s(impl.run_block) / impl.calls
    return elapsed_s(lambda: impl.graph.replay(impl.replays)) / (impl.calls * impl.replays)


def synchronize(device: str) -> None:
    """Wait for everything that was launched on cuda."""
    if device == "cuda":
        torch.cuda.synchronize()


def is_lost(device: str) -> bool:
    """Return whether the device no longer works: after some errors every later call of the process fails."""
    try:
        synchronize(device)
    except RuntimeError:
        return True
    return False


@contextmanager
def side_stream(device: str) -> Iterator[None]:
    """Run the block on a side stream on cuda.

    Autograd graphs are bound to the stream that recorded them, and the default stream cannot be captured.
    """
    if device != "cuda":
        yield
        return
    before, stream = torch.cuda.current_stream(), torch.cuda.Stream()
    stream.wait_stream(before)
    with torch.cuda.stream(stream):
        yield
    before.wait_stream(stream)


def capture(call: Callable[[int], Any], calls: int, sets: int) -> Capture:
    """Return the graph of ``calls`` calls over input sets 0, 1, …; NotCaptured where the call cannot be captured.

    A call that synchronizes with the host is refused first, because it would invalidate the capture. After a capture
    that failed all later ones of this process are refused.
    """
    if capture_failures:
        raise NotCaptured(f"an earlier capture failed in this process: {capture_failures[0]}")
    _check_no_sync(call)
    stream, graph, output = torch.cuda.current_stream(), torch.cuda.CUDAGraph(), None
    # a tensor that is freed by the collector during a capture invalidates it
    gc.collect()
    gc.disable()
    try:
        with torch.cuda.graph(graph, stream=stream):
            for i in range(calls):
                output = call(i % sets)
    except RuntimeError as error:
        reason = _first_line(error)
        capture_failures.append(reason)
        raise NotCaptured(reason) from error
    finally:
        gc.enable()
        # a capture that fails at its end leaves its own stream current
        torch.cuda.set_stream(stream)
    found = Capture(graph, (calls - 1) % sets, output)
    # the first launch uploads the graph
    found.replay()
    torch.cuda.synchronize()
    return found


def _check_no_sync(call: Callable[[int], Any]) -> None:
    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        # torch calls the mode a prototype
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode("error")
    try:
        call(0)
    except RuntimeError as error:
        raise NotCaptured(_first_line(error)) from error
    finally:
        torch.cuda.set_sync_debug_mode(mode)


def wall_s(run: Callable[[], object], device: str) -> float:
    """Return the seconds of ``run`` by the host's clock, from an idle device to an idle one."""
    synchronize(device)
    started = time.perf_counter()
    run()
    synchronize(device)
    return time.perf_counter() - started


def elapsed_s(run: Callable[[], object]) -> float:
    """Return the device seconds between two events around ``run``, which is queued before the first event."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    torch.cuda._sleep(SLEEP_CYCLES)
    begin.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1000


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
