"""Progress on stderr, where that is a terminal and a step takes longer than a moment."""

import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

PATIENCE_S = 2.0
"""Seconds without output."""
EVERY_S = 0.2
CLEAR = "\r\033[K"
END = object()

_stages: list[str] = []
"""The stages that run, the outermost first."""


@contextmanager
def stage(what: str) -> Iterator[None]:
    """Show ``what`` and the elapsed seconds while the block runs, and clear the line afterwards.

    A stage inside another one is added to its line.
    """
    _stages.append(what)
    over = threading.Event()
    display = None
    if len(_stages) == 1 and sys.stderr.isatty():
        display = threading.Thread(target=_show, args=(over,), daemon=True)
        display.start()
    try:
        yield
    finally:
        over.set()
        if display:
            display.join()
        _stages.pop()


def _show(over: threading.Event) -> None:
    started, wait = time.monotonic(), PATIENCE_S
    while not over.wait(wait):
        line = f"{': '.join(_stages)}, {time.monotonic() - started:.0f} s"
        print(CLEAR + line[-shutil.get_terminal_size().columns + 1 :], end="", file=sys.stderr, flush=True)
        wait = EVERY_S
    if wait == EVERY_S:
        print(CLEAR, end="", file=sys.stderr, flush=True)


def with_progress(items: Iterable[Any], what: str, names: Sequence[str] = ()) -> Iterator[Any]:
    """Yield ``items``, with progress while the next one is computed: ``what`` it is, its number, and of all ``names``
    its own.
    """
    iterator = iter(items)
    for number in count(1):
        name = f" of {len(names)}: {names[number - 1]}" if number <= len(names) else ""
        with stage(f"{what} {number}{name}"):
            item = next(iterator, END)
        if item is END:
            return
        yield item
