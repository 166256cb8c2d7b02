"""CUDA graphs of a call: captured on the stream that everything ran on, replayed between two events."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

SLEEP_CYCLES = 2_000_000
"""About a millisecond of a spinning kernel, behind which launches queue before the first event is reached."""


class Capture:
    """A graph of ``calls`` calls; ``output`` is what the last of them, of input set ``last``, gave."""

    def __init__(self, graph: Any, calls: int, last: int, output: Any) -> None:
        self.graph, self.calls, self.last, self.output = graph, calls, last, output

    def replay(self) -> None:
        """Run all calls again on what their inputs hold now."""
        self.graph.replay()


class NotCaptured(Exception):
    """Why a call has no graph."""


_stopped: list[str] = []


def stopped() -> str | None:
    """Why this process captures no more; None where it does. A failed capture may leave its memory pool open."""
    return _stopped[0] if _stopped else None


@contextmanager
def side_stream(device: str) -> Iterator[None]:
    """Run on a stream that is not the default one, on cuda.

    What autograd records is bound to its stream, and the default one cannot be captured.
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
    """The graph of ``calls`` calls over input sets 0, 1, …; NotCaptured with the reason where it cannot be had.

    An arm that makes the host wait is found out first, because trying would invalidate the capture.
    """
    if stopped():
        raise NotCaptured(f"an earlier capture failed in this process: {stopped()}")
    _refuse_waits(call)
    stream, graph, output = torch.cuda.current_stream(), torch.cuda.CUDAGraph(), None
    try:
        with torch.cuda.graph(graph, stream=stream):
            for i in range(calls):
                output = call(i % sets)
    except RuntimeError as error:
        reason = _first_line(error)
        _stopped.append(reason)
        raise NotCaptured(reason) from error
    finally:
        # an end of capture that raises leaves its own stream current
        torch.cuda.set_stream(stream)
    found = Capture(graph, calls, (calls - 1) % sets, output)
    # the first launch uploads the graph
    found.replay()
    torch.cuda.synchronize()
    return found


def _refuse_waits(call: Callable[[int], Any]) -> None:
    mode = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        call(0)
    except RuntimeError as error:
        raise NotCaptured(_first_line(error)) from error
    finally:
        torch.cuda.set_sync_debug_mode(mode)


def elapsed_s(run: Callable[[], None]) -> float:
    """Seconds of the device between two events around ``run``, which is queued before the first is reached."""
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
