"""Stored measurements: append-only JSON Lines, one record a line, raw samples and environment included."""

import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import headcount
from headcount.bench.errors import UsageError

SCHEMA_VERSION = 1


def shipped() -> Path:
    """The measurements that come with this software."""
    root = headcount.CHECKOUT or Path(headcount.__file__).parent
    return root / "reports" / "records"


def writable() -> Path:
    """Where new measurements are stored: with the others in a checkout, else in the user's own data folder."""
    if headcount.CHECKOUT:
        return shipped()
    if sys.platform == "win32":
        data = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        data = Path.home() / "Library" / "Application Support"
    else:
        data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "headcount" / "records"


def folders() -> tuple[Path, ...]:
    """Every folder that measurements are read from, each once."""
    return tuple(dict.fromkeys((shipped(), writable())))


def append(path: Path, record: Mapping[str, Any]) -> None:
    """Add one record as a whole line. UsageError where the file cannot be written."""
    line = json.dumps({"schema_version": SCHEMA_VERSION, **record}, ensure_ascii=False, allow_nan=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            # A line that a killed run left unfinished must not swallow this one.
            if file.tell() and not _ends_with_newline(file):
                file.write(b"\n")
            file.write(f"{line}\n".encode())
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


def _ends_with_newline(file) -> bool:
    file.seek(-1, 2)
    return file.read(1) == b"\n"


def read(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The records of a file in order, and one line for each line of it that is none, naming file and line.

    UsageError where the file cannot be read.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    records, problems = [], []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            problems.append(f"{path}:{number}: not JSON: {error}")
            continue
        if not isinstance(record, dict) or record.get("schema_version") != SCHEMA_VERSION:
            problems.append(f"{path}:{number}: not a record of schema version {SCHEMA_VERSION}")
            continue
        records.append(record)
    return records, problems


def place(root: Path, device: str, date: str, commit: str | None) -> Path:
    """Where a run's records belong: ``<root>/<device>/<date>-<commit>.jsonl``, with names fit for files."""
    return root / slug(device) / f"{date}-{(commit or 'no-commit')[:10]}.jsonl"


def slug(text: str) -> str:
    """``text`` as a file name: lower case, digits, hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
