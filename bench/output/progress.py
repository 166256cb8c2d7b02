"""Progress on stderr, where that is a terminal and a step takes longer than a moment."""

import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

PATIENCE_S = 2.0
"""Seconds without output."""
EVERY_S = 0.2
CLEAR = "\r\033[K"
END = object()

is_enabled = True
"""Whether progress is printed; off for a command that prints its own."""


@contextmanager
def stage(what: str) -> Iterator[None]:
    """Show ``what`` and the seconds that it takes while the block runs, and clear the line afterwards."""
    if not is_enabled or not sys.stderr.isatty():
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


def _show(what: str, over: threading.Event) -> None:
    started, wait = time.monotonic(), PATIENCE_S
    while not over.wait(wait):
        print(f"{CLEAR}{what}, {time.monotonic() - started:.0f} s", end="", file=sys.stderr, flush=True)
        wait = EVERY_S
    if wait == EVERY_S:
        print(CLEAR, end="", file=sys.stderr, flush=True)


def with_progress(items: Iterable[Any], what: str, unit: str) -> Iterator[Any]:
    """Yield ``items``, with progress while the next one is computed."""
    iterator = iter(items)
    for number in count(1):
        with stage(f"{what}, {unit} {number}"):
            item = next(iterator, END)
        if item is END:
            return
        yield item
