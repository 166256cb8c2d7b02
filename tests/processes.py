"""Run a module on several ranks of a gloo process group: by forks that have torch already, or by torchrun."""

import os
import runpy
import socket
import subprocess
import sys
from multiprocessing import get_context
from typing import NamedTuple

TORCHRUN = "torch.distributed.run"
_FORKS = get_context("forkserver")
_FORKS.set_forkserver_preload(["headcount.bench.latency.sharded_step"])


class Result(NamedTuple):
    """Exit codes of the ranks, or of torchrun, and what all printed."""

    codes: list[int]
    out: str
    err: str


def run_by_torchrun(ranks, *words):
    """Run ``python -m words`` on each rank by torchrun."""
    command = [sys.executable, "-W", "ignore", "-m", TORCHRUN, "--standalone", "--nproc-per-node", str(ranks), "-m"]
    found = subprocess.run([*command, *words], capture_output=True, text=True, timeout=300)
    return Result([found.returncode], found.stdout, found.stderr)


def run_by_forks(folder, ranks, *words):
    """Run ``python -m words`` on each rank, in forks of a process that has imported torch."""
    with socket.socket() as found:
        found.bind(("localhost", 0))
        port = found.getsockname()[1]
    started = [_FORKS.Process(target=_run, args=(str(folder), rank, ranks, port, words)) for rank in range(ranks)]
    for one in started:
        one.start()
    for one in started:
        one.join(300)
    out, err = ("".join((folder / f"{name}{rank}").read_text() for rank in range(ranks)) for name in ("out", "err"))
    return Result([one.exitcode for one in started], out, err)


def _run(folder, rank, ranks, port, words):
    sizes = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_PORT": port}
    os.environ.update({"MASTER_ADDR": "localhost", **{name: str(value) for name, value in sizes.items()}})
    for place, name in ((1, "out"), (2, "err")):
        file = os.open(f"{folder}/{name}{rank}", os.O_WRONLY | os.O_CREAT)
        os.dup2(file, place)
    sys.argv = list(words)
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)
