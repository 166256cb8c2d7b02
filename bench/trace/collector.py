"""Python's garbage collector while a trace grows."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def young_only() -> Iterator[None]:
    """Collect what is young, and leave what is old for later: a trace is a million objects without a cycle, and each
    full collection looks at all of them again. Thresholds are afterwards what they were."""
    before = gc.get_threshold()
    gc.set_threshold(before[0], before[1], 10**6)
    try:
        yield
    finally:
        gc.set_threshold(*before)
