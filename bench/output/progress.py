"""What is being done, on stderr, where that is a terminal and it takes longer than a moment."""

import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

PATIENCE_S = 2.0
"""Seconds without output."""
EVERY_S = 0.2
CLEAR = "\r\033[K"

T = TypeVar("T")
_silent = False


@contextmanager
def stage(what: str) -> Iterator[None]:
    """Show ``what`` and the seconds that it takes while the block runs, and clear the line afterwards."""
    if _silent or not sys.stderr.isatty():
        yield
        return
    over = threading.Event()
    display = threading.Thread(target=_show, args=(what, over), daemon=True)
    display.start()
    try:
        yield
    finally:
        over.set()
        display.join()


@contextmanager
def silenced() -> Iterator[None]:
    """Show no progress while the block runs, which prints its own."""
    global _silent
    before, _silent = _silent, True
    try:
        yield
    finally:
        _silent = before


def _show(what: str, over: threading.Event) -> None:
    started, wait, shown = time.monotonic(), PATIENCE_S, False
    while not over.wait(wait):
        sys.stderr.write(f"{CLEAR}{what}, {time.monotonic() - started:.0f} s")
        sys.stderr.flush()
        wait, shown = EVERY_S, True
    if shown:
        sys.stderr.write(CLEAR)
        sys.stderr.flush()


def watched(items: Iterable[T], what: str, unit: str) -> Iterator[T]:
    """``items``, with progress while the next one is made."""
    iterator, number = iter(items), 0
    while True:
        number += 1
        with stage(f"{what}, {unit} {number}"):
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item
