"""Worker processes with torch, which count while this process does something else."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from typing import Any

from tqdm import tqdm

from headcount.bench.errors import EnvironmentMissing, no_warning_is_an_error
from headcount.bench.isolated.heap import keep_freed


class Here(Executor):
    """Runs each call at once, in this process."""

    def submit(self, call: Callable[..., Any], /, *args: Any, **named: Any) -> Future:
        future: Future = Future()
        future.set_result(call(*args, **named))
        return future


class Workers(Executor):
    """``number`` processes of this interpreter, which see no GPU; with ``bar`` a progress bar on stderr where that is a
    terminal.

    As a context it leaves no process behind: it ends them where the block ends with an error, Ctrl-C included.
    Raises EnvironmentMissing where something else ended one.
    """

    def __init__(self, number: int, bar: bool = False) -> None:
        # a fork of a process with threads may hang, and none is to see a GPU: all machines must agree
        context = multiprocessing.get_context("spawn")
        with _signals_held():
            # starts a process of its own, which minds what others leave
            self._pool = ProcessPoolExecutor(number, context, initializer=_before_torch)
        self._bar = tqdm(total=0, desc="counting", unit="", leave=False, disable=None if bar else True)

    def submit(self, call: Callable[..., Any], /, *args: Any, **named: Any) -> Future:
        with _signals_held():
            future = self._pool.submit(call, *args, **named)
        self._bar.total += 1
        future.add_done_callback(lambda _: self._bar.update())
        return future

    def __exit__(self, error: type[BaseException] | None, *_: Any) -> None:
        if error:
            for process in multiprocessing.active_children():
                process.kill()
        # waits for the pool's thread: Python's end writes to the pipe that this thread closes
        self._pool.shutdown(cancel_futures=bool(error))
        self._bar.close()
        if error is BrokenProcessPool:
            raise EnvironmentMissing("a process that counts was ended from outside, perhaps for want of memory")


def _before_torch() -> None:
    no_warning_is_an_error()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    # two workers of many small products: more threads only wait for one another
    os.environ["OMP_NUM_THREADS"] = "1"
    keep_freed()


@contextmanager
def _held() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _signals_held():
    """Ctrl-C, SIGTERM and SIGHUP wait, and a process that is started here never hears them: it belongs to the one that
    ends them."""
    return _held() if hasattr(signal, "pthread_sigmask") else nullcontext()
