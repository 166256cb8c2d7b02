"""Write output to stdout or atomically to a file; create and check output folders."""

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

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


def write_figure(path: str | Path, figure: Any) -> None:
    """Write a figure of matplotlib in the format of the path's ending, and close it. The same one gives the same bytes.

    Raises UsageError where the path cannot be written or its ending is no format.
    """
    from matplotlib import pyplot

    drawn, form = io.BytesIO(), Path(path).suffix[1:] or "png"
    date = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    try:
        # no date, no random ids
        with pyplot.rc_context({"svg.hashsalt": "headcount"}):
            figure.savefig(drawn, format=form, metadata=date.get(form))
        write(path, drawn.getvalue())
    except ValueError as error:
        raise UsageError(f"cannot write {path}: {error}") from None
    finally:
        pyplot.close(figure)


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
