"""Settings of Python's garbage collector and of the C allocator that make counting faster."""

import atexit
import ctypes
import functools
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

P, R = ParamSpec("P"), TypeVar("R")


class NestedCountError(RuntimeError):
    """The module that is counted counts, or waits for a thread that does."""

    exit_code = 2


_ONE_COUNT = threading.RLock()
"""Held while a thread counts."""
_counting: tuple[int, int, tuple[int, int, int]] | None = None
"""The thread that counts, by Python's number and by the system's, and the thresholds of the collector before."""
DEADLOCK_S = 20
"""A count ends in an error after it has waited this long for one whose thread has done nothing meanwhile."""
IDLE_SHARE = 0.02
"""Processor time that a thread which waits for another takes at most, by second, in a loop that looks for it too."""


def _restore_in_child() -> None:
    """Restore the collector in a process forked while another thread counted: that thread is not in it."""
    if _counting and _counting[0] != threading.get_ident():
        gc.set_threshold(*_counting[2])
        _ONE_COUNT._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restore_in_child)


def _acquire() -> None:
    """Wait until no other thread counts. Raise NestedCountError if that thread only waits, perhaps for this one."""
    idle_s, before = 0, None
    while not _ONE_COUNT.acquire(timeout=1):
        now = _counting and _processor_time(_counting[1])
        is_idle = now is not None and before is not None and now - before < IDLE_SHARE
        idle_s, before = idle_s + 1 if is_idle else 0, now
        if idle_s == DEADLOCK_S:
            raise NestedCountError(
                "a count inside a count: the module that is counted waits for a thread, and this thread counts; call "
                "its layers instead"
            )


def _processor_time(thread: int) -> float | None:
    """Return the seconds that a thread of this process has run; None where the system does not say."""
    try:
        fields = Path(f"/proc/self/task/{thread}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    # in user and in kernel mode, the 14th and 15th field of proc(5)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


YOUNG = 50_000
"""New objects between two collections of the youngest during a count, which frees few of them."""


def no_full_gc(function: Callable[P, R]) -> Callable[P, R]:
    """Run no full garbage collection in ``function``, which one thread calls at a time.

    A trace is a million objects without a cycle, and each full collection would visit all of them again. The
    thresholds are the process's. This is no context manager: an interrupt may come first in a Python ``__exit__``.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        global _counting
        if _ONE_COUNT._is_owned():
            return function(*args, **kwargs)
        before = None
        try:
            _acquire()
            before = gc.get_threshold()
            _counting = threading.get_ident(), threading.get_native_id(), before
            gc.set_threshold(max(before[0], YOUNG) if before[0] else 0, before[1], 10**6)
            return function(*args, **kwargs)
        finally:
            # an interrupt may come right after the lock is acquired
            if _ONE_COUNT._is_owned():
                if before:
                    gc.set_threshold(*before)
                _counting = None
                _ONE_COUNT.release()

    return call


@contextmanager
def importing() -> Iterator[None]:
    """Run no garbage collection while torch is first imported, and exclude its objects from later ones.

    For commands, which own their process.
    """
    if "torch" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()
        # triton prints what is not freed at the end of Python
        atexit.register(gc.unfreeze)


def keep_freed_memory() -> None:
    """Reuse the memory of freed tensors instead of returning it to the system, if the C library has mallopt(3)."""
    if sys.platform.startswith("linux") and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        mmap_max, trim_threshold = -4, -1
        libc.mallopt(mmap_max, 0)
        libc.mallopt(trim_threshold, 2**31 - 1)
