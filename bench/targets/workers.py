"""Worker processes with torch that count while the calling process does something else."""

import atexit
import errno
import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from functools import partial
from typing import Any

from headcount.bench.errors import reset_warning_filters
from headcount.bench.targets import process
from headcount.bench.targets.process import exit_with_parent, starting
from headcount.bench.trace.garbage_collector import keep_freed_memory


class Here(Executor):
    """Executor that runs each call at once, in this process."""

    def submit(self, call: Callable[..., Any], /, *args: Any, **named: Any) -> Future:
        future: Future = Future()
        future.set_result(call(*args, **named))
        return future


class Workers(ProcessPoolExecutor):
    """Executor of ``number`` processes that see no GPU.

    As a context manager it kills the processes where the block ends with an error, Ctrl-C included. They also exit
    when this process ends. A call whose process was ended from outside raises BrokenExecutor.
    """

    def __init__(self, number: int) -> None:
        # none may see a GPU: all machines must agree
        try:
            with starting():
                # creating the pool starts multiprocessing's resource tracker
                super().__init__(number, process.CONTEXT, initializer=_initialize)
        except OSError as error:
            # the C library reports no number where a semaphore's file is cut off
            code = error.errno or errno.EFBIG
            raise OSError(code, os.strerror(code)) from error

    def submit(self, call: Callable[..., Any], /, *args: Any, **named: Any) -> Future:
        with starting():
            future = super().submit(call, *args, **named)
        # Python 3.11 stops at a cancelled call, and leaves the others waiting, when a process was killed
        future.set_exception = partial(_set_exception, future)
        return future

    def __exit__(self, error: type[BaseException] | None, *_: Any) -> None:
        if error:
            for child in multiprocessing.active_children():
                child.kill()
        # waits for the pool's thread, whose pipe Python's shutdown would otherwise write to after it is closed
        self.shutdown(cancel_futures=bool(error))


def _set_exception(future: Future, error: BaseException) -> None:
    if not future.cancelled():
        Future.set_exception(future, error)


def _initialize() -> None:
    """Prepare a worker before it imports torch."""
    threading.Thread(target=exit_with_parent, daemon=True).start()
    # without freeing every object of torch
    atexit.register(os._exit, 0)
    reset_warning_filters()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    # two workers run many small products: more threads only wait for one another
    os.environ["OMP_NUM_THREADS"] = "1"
    keep_freed_memory()
