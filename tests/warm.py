"""Processes that are forks of a server which has imported torch and the counters, in place of new ones.

Tests with the fixture ``cold`` start new processes.
"""

import os
import runpy
import socket
import sys
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


class Context(ForkServerContext):
    """A replacement of bench.targets.process.CONTEXT."""

    is_running = False

    def start(self):
        """Start the server, unless it runs."""
        if self.is_running:
            return
        self.is_running = True
        self.set_forkserver_preload(["tests.preload"])
        with pytest.MonkeyPatch.context() as patch:
            # a module that the server does not find is no error, and a test may have changed the folder
            patch.setenv("PYTHONPATH", str(ROOT))
            forkserver.ensure_running()
        # a fork of the tests cannot ask about the server, which is no child of its own
        forkserver._forkserver.ensure_running = lambda: None

    def Process(self, target, args):  # noqa: N802
        self.start()
        # a fork has the variables that the server started with
        return ForkServerProcess(target=_with_variables, args=(dict(os.environ), target, args))


def _with_variables(variables, target, args):
    os.environ.clear()
    os.environ.update(variables)
    target(*args)


def run_ranks(context, ranks, words, out, err, seconds):
    """Run ``python -m words`` on each of ``ranks``, as torchrun does; return 0, or 1 if one fails or takes longer.

    ``out`` and ``err`` are the paths of what they print.
    """
    with socket.socket() as found:
        found.bind(("localhost", 0))
        port = found.getsockname()[1]
    sizes = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    started = []
    for rank in range(ranks):
        variables = {name: str(value) for name, value in {**sizes, "RANK": rank, "LOCAL_RANK": rank}.items()}
        started.append(context.Process(_run_rank, (variables, words, out, err)))
        started[-1].start()
    for process in started:
        process.join(seconds)
        process.kill()
        process.join()
    return int(any(process.exitcode for process in started))


def _run_rank(variables, words, out, err):
    os.environ.update(variables)
    for stream, path in enumerate((out, err), 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), stream)
    sys.argv = list(words)
    try:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    finally:
        sys.stdout.flush()
