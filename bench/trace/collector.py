"""Python's garbage collector while a trace grows, and while torch is imported."""

import atexit
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_full_gc() -> Iterator[None]:
    """Collect what is young, and leave what is old for later: a trace is a million objects without a cycle, and each
    full collection looks at all of them again. Thresholds are afterwards what they were."""
    before = gc.get_threshold()
    gc.set_threshold(before[0], before[1], 10**6)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def importing() -> Iterator[None]:
    """No collection while modules are imported, the first time that torch is among them: what they are made of stays
    for good, and no later collection looks at it, nor the one at the end, whose pages the system takes back anyway. For
    commands, whose process is theirs."""
    if "torch" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()
        atexit.register(gc.freeze)
