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
from typing import ParamSpec, TypeVar

P, R = ParamSpec("P"), TypeVar("R")

_ONE_COUNT = threading.RLock()
"""Held while a thread counts."""
if hasattr(os, "register_at_fork"):
    # A child that is forked during a count would keep its patches.
    os.register_at_fork(
        before=_ONE_COUNT.acquire, after_in_child=_ONE_COUNT.release, after_in_parent=_ONE_COUNT.release
    )


YOUNG = 50_000
"""New objects between two collections of the youngest during a count, which frees few of them."""


def no_full_gc(function: Callable[P, R]) -> Callable[P, R]:
    """Run no full garbage collection in ``function``, which one thread calls at a time.

    A trace is a million objects without a cycle, and each full collection would visit all of them again. The
    thresholds are the process's. This is no context manager: an interrupt may come first in a Python ``__exit__``.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with _ONE_COUNT:
            before = gc.get_threshold()
            try:
                gc.set_threshold(max(before[0], YOUNG) if before[0] else 0, before[1], 10**6)
                return function(*args, **kwargs)
            finally:
                gc.set_threshold(*before)

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
