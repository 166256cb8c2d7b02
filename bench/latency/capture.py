"""Capture CUDA graphs of a call on the stream that it ran on, and time replays between two events."""

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

SLEEP_CYCLES = 2_000_000
"""Cycles of a kernel that spins for about a millisecond, so that launches queue before the first event."""


class Capture:
    """A graph of ``calls`` calls; ``output`` is the result of the last one, on input set ``last``."""

    def __init__(self, graph: Any, calls: int, last: int, output: Any) -> None:
        self.graph, self.calls, self.last, self.output = graph, calls, last, output

    def replay(self) -> None:
        """Run all calls again on the present values of their inputs."""
        self.graph.replay()


class NotCaptured(Exception):
    """A call cannot be captured; the message is the reason."""


failures: list[str] = []
"""Why this process captures no more graphs; empty where it does. A failed capture may leave its memory pool open."""


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
    if failures:
        raise NotCaptured(f"an earlier capture failed in this process: {failures[0]}")
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
        failures.append(reason)
        raise NotCaptured(reason) from error
    finally:
        gc.enable()
        # a capture that fails at its end leaves its own stream current
        torch.cuda.set_stream(stream)
    found = Capture(graph, calls, (calls - 1) % sets, output)
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


def elapsed_s(run: Callable[[], None]) -> float:
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
