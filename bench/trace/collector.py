"""Settings of Python's garbage collector and of the C allocator that make counting faster."""

import atexit
import ctypes
import gc
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_ONE_COUNT = threading.RLock()
"""Held while a thread counts."""
if hasattr(os, "register_at_fork"):
    # A child that is forked during a count would keep its patches.
    os.register_at_fork(
        before=_ONE_COUNT.acquire, after_in_child=_ONE_COUNT.release, after_in_parent=_ONE_COUNT.release
    )


YOUNG = 50_000
"""New objects between two collections of the youngest during a count, which frees few of them."""


@contextmanager
def no_full_gc() -> Iterator[None]:
    """Run no full garbage collection in the block, which one thread enters at a time: the thresholds are the process's.

    A trace is a million objects without a cycle, and each full collection would visit all of them again.
    """
    with _ONE_COUNT:
        before = gc.get_threshold()
        try:
            gc.set_threshold(max(before[0], YOUNG) if before[0] else 0, before[1], 10**6)
            yield
        finally:
            gc.set_threshold(*before)


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
