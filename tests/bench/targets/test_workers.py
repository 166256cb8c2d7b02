"""Worker processes see no GPU, and none is left after an error."""

import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import BrokenExecutor

import pytest

import headcount
from headcount.bench.errors import format_error
from headcount.bench.targets.workers import Workers


def test_workers_see_no_gpu(capfd, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    before = set(multiprocessing.active_children())
    with Workers(1) as workers:
        pids = [workers.submit(os.getpid) for _ in range(5)]
        seen = workers.submit(os.getenv, "CUDA_VISIBLE_DEVICES").result()
        children = {process.pid for process in multiprocessing.active_children()}
        assert {future.result() for future in pids} <= children - {os.getpid()}
        assert len(set(multiprocessing.active_children()) - before) == 1
    assert seen == ""
    assert set(multiprocessing.active_children()) <= before
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_error_ends_workers(error):
    threads = set(threading.enumerate())
    with pytest.raises(error), Workers(2) as workers:
        workers.submit(os.getpid).result()
        sleeping = workers.submit(time.sleep, 600)
        raise error
    # a thread that closes its pipe while Python ends would print a traceback
    assert set(threading.enumerate()) <= threads
    assert multiprocessing.active_children() == []
    assert sleeping.done() or sleeping.cancel() or sleeping.exception(10)


def test_killed_worker_is_one_line_and_exit_3(capfd):
    """Later calls end although an earlier one was cancelled."""
    with pytest.raises(BrokenExecutor) as raised, Workers(1) as workers:
        first = workers.submit(os.getpid).result()
        calls = [workers.submit(time.sleep, 600) for _ in range(5)]
        assert calls[3].cancel()
        os.kill(first, signal.SIGKILL)
        calls[4].result(30)
    text = "a process that counts was ended from outside, perhaps for want of memory"
    assert format_error(raised.value) == (text, 3) and capfd.readouterr().err == ""


def test_full_disk_is_one_line():
    """A semaphore is a file of 32 bytes, of which glibc writes the first and reports error 0."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, limits[1]))
    try:
        with pytest.raises(OSError) as raised:
            Workers(1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert format_error(raised.value) == ("File too large", 2)


PARENT = """
import os, time
from headcount.bench.targets.workers import Workers

if __name__ == "__main__":
    with Workers(1) as workers:
        print(workers.submit(os.getpid).result(), flush=True)
        workers.submit(time.sleep, 600)
        time.sleep(600)
"""


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="this system has no signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_worker_exits_with_parent(number, tmp_path):
    (tmp_path / "parent.py").write_text(PARENT)
    env = {**os.environ, "PYTHONPATH": str(headcount.CHECKOUT)}
    with subprocess.Popen(
        [sys.executable, tmp_path / "parent.py"], stdout=subprocess.PIPE, text=True, env=env
    ) as parent:
        assert int(parent.stdout.readline()) != parent.pid
        parent.send_signal(number)
        # the pipe is closed once the worker, which inherited it, has exited
        assert parent.stdout.read() == ""
    assert parent.returncode == -number
