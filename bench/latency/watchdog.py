"""End a distributed run in which no rank makes progress, and name the rank that the others wait for."""

import os
import sys
import threading
import time
from collections.abc import Iterable, Sequence

import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

from headcount.bench.table import plural

POLL_S = 0.5
"""Seconds between two beats of a rank."""


class Watchdog(threading.Thread):
    """A context whose thread publishes this rank's progress in the process group's store, and reads the others'.

    Progress is the number of collectives that a rank has started. Where none starts on any rank for ``timeout_s``
    seconds, the first rank that does not hang prints which one does after ``prog``, and exits with code 1.
    torchrun then ends the others; where a process dies, torchrun itself names its rank and its signal.
    """

    def __init__(self, prog: str, groups: Iterable[dist.ProcessGroup], timeout_s: float) -> None:
        super().__init__(daemon=True)
        self.prog, self.groups, self.timeout_s = prog, list(groups), timeout_s
        self.rank, self.keys = dist.get_rank(), [f"headcount/{rank}" for rank in range(dist.get_world_size())]
        # a separate client: the main thread may block the other one
        self.store = _get_default_store().clone()
        self.ended = threading.Event()
        self._publish(0)

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.join()

    def _publish(self, beat: int) -> None:
        started = sum(group._get_sequence_number_for_group() for group in self.groups)
        self.store.set(self.keys[self.rank], f"{beat} {started}")

    def run(self) -> None:
        """Publish and read until the run has ended."""
        since: dict[tuple, float] = {}
        beat = 0
        while not self.ended.wait(POLL_S):
            beat += 1
            self._publish(beat)
            found = [tuple(map(int, value.split())) for value in self.store.multi_get(self.keys)]
            beats, started = zip(*found, strict=True)
            now = time.monotonic()
            # since when each rank has its beat, and all have started as many collectives
            since = {key: since.get(key, now) for key in [*enumerate(beats), ("started", *started)]}
            *beaten, moved = since.values()
            if now - moved > self.timeout_s:
                silent = [rank for rank, last in enumerate(beaten) if now - last > self.timeout_s / 2]
                self._end(silent, started)

    def _end(self, silent: Sequence[int], started: Sequence[int]) -> None:
        """Name the ranks that hang and exit, on the first rank that does not."""
        lost = silent or [rank for rank, calls in enumerate(started) if calls == min(started)]
        ready = [rank for rank in range(len(started)) if rank not in lost]
        if self.rank != (ready or lost)[0]:
            return
        names = f"rank{'s' * (len(lost) > 1)} {', '.join(map(str, lost))}" if ready else "all ranks"
        others = f", others up to {max(started)}" * bool(ready)
        why = "stopped" if silent else f"started {plural(min(started), 'collective')}{others}"
        text = f"{self.prog}: error: no progress for {self.timeout_s:g} s: {names} {why}"
        print(text, file=sys.__stderr__, flush=True)
        os._exit(1)
