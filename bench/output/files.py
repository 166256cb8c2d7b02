"""Write output to stdout or atomically to a file; create and check output folders."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from headcount.bench.errors import UsageError

LOCK = ".lock"
"""The usual ending of a lock, which is JSON whatever its name."""
ENDINGS = {"text": ".txt", "md": ".md", "json": ".json", "csv": ".csv", "latex": ".tex"}
"""The ending of a file in each format."""


def infer_format(name: str | None, path: str | None) -> str:
    """Return the format ``name``, else the one of the file's ending, else text.

    Raises UsageError where name and ending contradict each other, and for an ending of no format without a name.
    """
    file = "" if not path or is_folder(path) else path.lower()
    by_ending = next((known for known, ending in ENDINGS.items() if file.endswith(ending)), None)
    if name and by_ending and name != by_ending:
        raise UsageError(f"--out {path} ends as {by_ending} does, but --format is {name}")
    ending = os.path.splitext(file)[1]
    if ending and not (name or by_ending or ending == LOCK):
        raise UsageError(f"--out {path}: unknown ending {ending}; use {', '.join(ENDINGS.values())} or --format")
    return name or by_ending or "text"


def is_folder(path: str | Path) -> bool:
    """Return whether ``path`` is an existing folder or ends in a slash."""
    return str(path).endswith(("/", os.sep)) or os.path.isdir(path)


def ensure_dir(path: str | Path) -> Path:
    """Return the folder at ``path``, created where it is missing. Raises UsageError if it cannot be created."""
    with _report_errors(path):
        Path(path).mkdir(parents=True, exist_ok=True)
    return Path(path)


def cache_folder(name: str) -> Path:
    """Return the folder of what is stored between runs: below HEADCOUNT_CACHE, else below the user's cache.

    Of a user without a home it is none that can be written.
    """
    if own := os.environ.get("HEADCOUNT_CACHE"):
        return Path(own) / name
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headcount" / name
    except RuntimeError:
        return Path(os.devnull) / name


def check_writable(path: str | Path) -> None:
    """Raise UsageError where no output can be written to ``path``.

    Nothing is left behind; a missing folder is not created.
    """
    with _report_errors(path):
        if is_folder(path):
            with suppress(FileNotFoundError):
                os.stat(path)
            return
        target, opened = _target_and_temporary(path)
        if opened != target:
            opened.touch(exist_ok=False)
            opened.unlink()


@contextmanager
def open_output(path: str | Path | None) -> Iterator[TextIO]:
    """Open stdout for None, else a temporary file in the same folder that is renamed to ``path`` if the block succeeds.

    On an exception it is removed and an older file stays. Devices and pipes are opened themselves. Raises UsageError
    where the path cannot be written; exceptions of the block, BrokenPipeError too, propagate.
    """
    if path is None:
        yield sys.stdout
        return
    target, opened = _target_and_temporary(path)
    direct = opened == target
    with _report_errors(path):
        stream = open(opened, "w" if direct else "x", encoding="utf-8", newline="")
    try:
        with stream:
            yield stream
        if not direct:
            with _report_errors(path):
                opened.replace(target)
    except BaseException:
        if not direct:
            opened.unlink(missing_ok=True)
        raise


def write(path: str | Path, content: str | bytes) -> None:
    """Write ``content`` to the file at ``path``, completely or not at all. Raises UsageError where it fails."""
    with _report_errors(path), open_output(path) as stream:
        stream.buffer.write(content.encode() if isinstance(content, str) else content)
        stream.flush()


def _target_and_temporary(path: str | Path) -> tuple[Path, Path]:
    """Return the target of ``path`` and the file to open: a temporary one next to it, or a device or pipe itself."""
    target = Path(os.path.realpath(path))
    if os.path.islink(target):
        raise UsageError(f"cannot write {path}: {os.strerror(errno.ELOOP)}")
    direct = os.path.exists(target) and not os.path.isfile(target)
    return target, target if direct else target.with_name(f".{target.name}.{os.getpid()}.tmp")


@contextmanager
def _report_errors(path: str | Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
