"""Worker processes see no GPU, and none is left after an error."""

import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures import BrokenExecutor

import pytest

from headcount.bench.errors import format_error
from headcount.bench.targets.workers import Workers

pytestmark = pytest.mark.usefixtures("cold")


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


def test_interrupt_ends_workers():
    threads = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt), Workers(2) as workers:
        workers.submit(os.getpid).result()
        sleeping = workers.submit(time.sleep, 600)
        raise KeyboardInterrupt
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
