"""Memory that a process gives back is memory that the next tensor must fetch again, a page at a time."""

import ctypes
import sys

TRIM_THRESHOLD, MMAP_MAX = -1, -4
"""Parameters of mallopt(3)."""
MOST = 2**31 - 1


def keep_freed() -> None:
    """Have this process keep the memory of freed tensors for the next ones, where the C library can be told.

    Counting makes and frees tensors of megabytes by thousands: a quarter of its time goes into pages otherwise.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        mallopt(MMAP_MAX, 0)
        mallopt(TRIM_THRESHOLD, MOST)
