"""Start processes as forks of one that has imported what they need. Imports no torch."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any, NoReturn

from headcount.bench.errors import reset_warning_filters
from headcount.bench.trace.garbage_collector import importing

IS_SAFE = sys.platform == "linux"
"""Whether a fork of a process that has imported torch runs: libraries of macOS refuse it, and Windows has none."""
NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"
"""The variable that lets torch look for a GPU without a context of CUDA, with which no fork could use the GPU."""


class ForkServer:
    """A process that imports ``modules`` from ``path``, and whose forks run ``target``.

    ``spawn`` starts it. It ends where a module cannot be imported.
    """

    def __init__(
        self, spawn: Callable[..., BaseProcess], target: Callable[..., Any], modules: Sequence[str], path: Sequence[str]
    ) -> None:
        self._requests, its_requests = multiprocessing.Pipe()
        with its_requests:
            self._process = spawn(_serve, its_requests, target, modules, path)

    def start(self, connections: Sequence[Connection], *args: Any) -> "Fork":
        """Start a fork, with copies of ``connections`` before the arguments of its target.

        Raises EOFError or ConnectionError where the process has ended.
        """
        self._requests.send(args)
        for one in connections:
            send_handle(self._requests, one.fileno(), self._process.pid)
        return Fork(self._requests, self._requests.recv())

    def end(self) -> None:
        """End the process, and its forks with it."""
        self._requests.close()
        self._process.kill()
        self._process.join()


class Fork:
    """A fork of another process, of which that one answers what a Process does."""

    def __init__(self, requests: Connection, pid: int) -> None:
        self._requests, self.pid = requests, pid

    @property
    def exitcode(self) -> int | None:
        """Return the exit code; None while it runs."""
        return self._ask("exitcode")

    def is_alive(self) -> bool:
        """Return whether it runs."""
        return self.exitcode is None

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._ask("kill")

    def join(self) -> None:
        """Wait until it has ended."""
        self._ask("join")

    def _ask(self, name: str) -> Any:
        with suppress(EOFError, ConnectionError):
            self._requests.send((self.pid, name))
            return self._requests.recv()
        # it ends with the process that forked it
        return -signal.SIGKILL


def _serve(requests: Connection, target: Callable[..., Any], modules: Sequence[str], path: Sequence[str]) -> None:
    """Import ``modules``, then answer requests until there are no more."""
    with open(os.devnull, "w") as nothing:
        for stream in (1, 2):
            os.dup2(nothing.fileno(), stream)
    reset_warning_filters()
    try:
        before, has_check = sys.path[:], NVML_CHECK in os.environ
        sys.path[:] = path
        os.environ.setdefault(NVML_CHECK, "1")
        with importing():
            for module in modules:
                import_module(module)
        sys.path[:] = before
        if not has_check:
            del os.environ[NVML_CHECK]
        _answer(requests, target)
    finally:
        # forks end with this process, and so do imports that failed halfway
        os._exit(0)


def _answer(requests: Connection, target: Callable[..., Any]) -> NoReturn:
    """Answer requests, the arguments of a new fork, or the number of one and what is asked of it, until EOFError."""
    forks: dict[int | None, BaseProcess] = {}
    while True:
        first, *others = requests.recv()
        if first in forks:
            found = getattr(forks[first], *others)
            requests.send(found() if callable(found) else found)
            continue
        calls, log = (Connection(recv_handle(requests)) for _ in range(2))
        with calls, log:
            process = multiprocessing.get_context("fork").Process(target=target, args=(calls, log, first, *others))
            process.start()
        forks[process.pid] = process
        requests.send(process.pid)
