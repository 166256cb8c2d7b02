"""Run a command in a worker process with a deadline for each step; restart a worker that hangs, dies or requests it.

Imports no torch: the seconds since the command began include those that the worker needs to import it.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from headcount.bench.errors import EnvironmentMissing

WORKER = "HEADCOUNT_WORKER"
"""Environment variable of a worker: JSON with ``pipe``, ``started`` in seconds since the epoch, ``step``, ``reason``.

``step`` is the one that the worker before it did not finish, for ``reason``."""
RESTART = 75
"""Exit code of a worker that wants to be replaced."""
STARTUP_S = 300
"""Seconds until a worker begins its first step."""
MOST_RESTARTS = 8
"""Limit of the restarts that a worker may request within one step."""


def worker() -> dict[str, Any]:
    """Return what the parent of this worker states; empty in any other process."""
    return json.loads(os.environ.get(WORKER, "{}"))


def begin_step(step: str, within_s: float) -> None:
    """Tell the parent of this worker to end it unless another step begins in ``within_s`` seconds."""
    if found := worker():
        Connection(os.dup(found["pipe"]), readable=False).send_bytes(json.dumps([step, within_s]).encode())


def restart() -> NoReturn:
    """End this worker, for another one to continue."""
    sys.stdout.flush()
    sys.exit(RESTART)


def run_watched(command: Sequence[str]) -> int:
    """Run ``command`` in one worker after another until one ends by itself, and return its exit code.

    Raises EnvironmentMissing where a worker hangs or is killed before its first step.
    """
    state: dict[str, Any] = {"started": time.time()}
    restarts: Counter[str | None] = Counter()
    while True:
        code, step, reason = _run(command, state)
        restarts[step] += 1
        if code == RESTART and restarts[step] > MOST_RESTARTS:
            reason = f"it was begun in {restarts[step]} processes"
        if code != RESTART and reason is None:
            return code
        if reason and step is None:
            raise EnvironmentMissing(f"the process that measures {reason}")
        if reason:
            print(f"{step}: {reason}; continuing in a new process", file=sys.stderr)
        state |= {"step": reason and step, "reason": reason}


def _run(command: Sequence[str], state: dict[str, Any]) -> tuple[int, str | None, str | None]:
    """Return the exit code of a worker, its last step, and why it did not finish that; None where it ended itself."""
    steps, worker_end = Pipe(duplex=False)
    pipe = worker_end.fileno()
    environ = os.environ | {WORKER: json.dumps({**state, "pipe": pipe})}
    step, limit = None, STARTUP_S
    with steps, process_group(command, env=environ, pass_fds=[pipe]) as process:
        worker_end.close()
        deadline = time.monotonic() + limit
        while steps.poll(max(0.0, deadline - time.monotonic())):
            try:
                step, limit = json.loads(steps.recv_bytes())
            except EOFError:
                code = process.wait()
                return code, step, f"was killed by signal {-code}" if code < 0 else None
            deadline = time.monotonic() + limit
    return RESTART, step, f"gave no answer within {limit:.0f} s"


@contextmanager
def process_group(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen]:
    """Start a process in a group of its own, so that Ctrl-C reaches only this process; kill the group at the end."""
    with subprocess.Popen(command, process_group=0, **options) as process:
        try:
            yield process
        finally:
            if hasattr(os, "killpg"):
                with suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
