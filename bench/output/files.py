"""Where output goes: stdout, a file that is complete or not there, a folder with a file for each table."""

import errno
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from headcount.bench.errors import UsageError

ENDINGS = {"text": ".txt", "md": ".md", "json": ".json", "csv": ".csv", "latex": ".tex"}
"""What the name of a file in a format ends in."""


def chosen(form: str | None, path: str | None) -> str:
    """The format that is asked for by name or by the ending of a file's name; text where neither says one.

    UsageError where the two contradict each other.
    """
    by_ending = next((name for name, ending in ENDINGS.items() if path and path.lower().endswith(ending)), None)
    if path and is_folder(path):
        by_ending = None
    if form and by_ending and form != by_ending:
        raise UsageError(f"--out {path} ends as {by_ending} does, and --format says {form}")
    return form or by_ending or "text"


def is_folder(path: str | Path) -> bool:
    """Whether ``path`` names a folder: one that is there, or that ends in a slash."""
    return str(path).endswith(("/", os.sep)) or os.path.isdir(path)


def made(path: str | Path) -> Path:
    """The folder at ``path``, made where it is missing. UsageError where it cannot be."""
    with _usable(path):
        Path(path).mkdir(parents=True, exist_ok=True)
    return Path(path)


def check(path: str | Path) -> None:
    """UsageError where no output can be written to ``path``: known before anything is measured, drawn or stored.

    Nothing stays of it; a folder that is missing is not made.
    """
    with _usable(path):
        if is_folder(path):
            with suppress(FileNotFoundError):
                os.stat(path)
            return
        target, opened = _places(path)
        if opened != target:
            opened.touch(exist_ok=False)
            opened.unlink()


def write_json(stream: TextIO, payload: Any) -> None:
    """JSON that is the same for the same payload, in its own order; ValueError for NaN and infinity."""
    stream.write(json.dumps(payload, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    stream.flush()


@contextmanager
def open_output(path: str | Path | None) -> Iterator[TextIO]:
    """A stream to stdout for None, else to a file that appears, complete, only when the block succeeds.

    Until then it is a temporary file beside it, removed on any exception; an older file stays. Raises
    UsageError where the path cannot be written. Errors of the block, a broken pipe too, pass through.
    """
    if path is None:
        yield sys.stdout
        return
    with _whole(path, "", encoding="utf-8", newline="") as stream:
        yield stream


def write(path: str | Path, content: str | bytes) -> None:
    """Make ``content`` the file at ``path``: all of it, or the older file stays. UsageError where that cannot be."""
    data = content.encode() if isinstance(content, str) else content
    with _usable(path), _whole(path, "b") as stream:
        stream.write(data)
        stream.flush()


@contextmanager
def _whole(path: str | Path, mode: str, **options: Any) -> Iterator[Any]:
    target, opened = _places(path)
    direct = opened == target
    with _usable(path):
        stream = open(opened, f"{'w' if direct else 'x'}{mode}", **options)
    try:
        with stream:
            yield stream
        if not direct:
            with _usable(path):
                opened.replace(target)
    except BaseException:
        if not direct:
            opened.unlink(missing_ok=True)
        raise


def _places(path: str | Path) -> tuple[Path, Path]:
    """What ``path`` leads to, and what is opened to write it: a temporary file beside it, but a device or a pipe
    itself, which cannot be replaced."""
    target = Path(os.path.realpath(path))
    if os.path.islink(target):
        raise UsageError(f"cannot write {path}: {os.strerror(errno.ELOOP)}")
    direct = os.path.exists(target) and not os.path.isfile(target)
    return target, target if direct else target.with_name(f".{target.name}.{os.getpid()}.tmp")


@contextmanager
def _usable(path: str | Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
