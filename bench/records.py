"""Stored measurements: append-only JSON Lines, one record a line, raw samples and environment included."""

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import headcount
from headcount.bench.errors import UsageError
from headcount.models.configs.base import AttentionConfig
from headcount.models.configs.layers import layer

SCHEMA_VERSION = 1

NOT_COMPARED = ("bias", "form")
"""No recorded layer has biases, and which heads are computed is a matter of how a layer is run."""

GRAPH, EVENTS, WALL = "graph", "events", "wall"
"""How a call is timed."""

ROLES = ("subject", "dense")
"""Arms that are the layer of their name: itself, and MoH with every head computed."""


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


def layer_times(
    roots: Sequence[Path], device: str, like: AttentionConfig, seq_len: int, letters: tuple[str, ...]
) -> Mapping[tuple[int, ...], float]:
    """Milliseconds of a layer's forward pass by its sizes in ``letters``: the fastest arm's median.

    All are of one kind: of replayed graphs, by the arms that have one, where every layer has such an arm; else wall
    time. A replay holds no launches, so a call that does would win or lose by them.
    The layers are ``like`` in everything else, biases apart; where that computes every head, runs that skip some
    are left out. Of a layer recorded with several batch sizes, types or routings the newest run's first is taken.
    Lines that are no records are named on stderr.
    """
    fields = like.fields_by_letter
    same = {letter: size for letter, size in like.letters().items() if letter not in (*letters, *NOT_COMPARED)}
    newest: dict[tuple[int, ...], dict] = {}
    arms: dict[tuple[int, ...], list[dict]] = {}
    for record in _timed(root / slug(device) for root in roots):
        config = layer(record["name"])
        if (config.variant, record["seq_len"]) != (like.variant, seq_len):
            continue
        # where every head is to be computed, an arm that skips some is another layer
        skips = next((arm.form for arm in config.arms if arm.name == record["implementation"]), None)
        if skips not in (None, getattr(like, "form", None)):
            continue
        if any(getattr(config, fields[letter]) != size for letter, size in same.items()):
            continue
        key = tuple(getattr(config, fields[letter]) for letter in letters)
        first = newest.setdefault(key, record)
        if (first["cell"], first["environment"]["time"]) == (record["cell"], record["environment"]["time"]):
            arms.setdefault(key, []).append(record)
    replayed = {key: [record["gpu_ms"] for record in rows if timed_by(record) == GRAPH] for key, rows in arms.items()}
    alike = replayed if all(replayed.values()) else {key: [r["wall_ms"] for r in rows] for key, rows in arms.items()}
    return {key: min(map(_median, samples)) for key, samples in alike.items()}


def timed_by(record: Mapping[str, Any]) -> str:
    """How the main time of a timed record came about: ``graph`` replays and eager calls between ``events`` on a GPU,
    else ``wall``; of records from before it was written down too."""
    if record.get("timed_by"):
        return record["timed_by"]
    if not record["gpu_ms"]:
        return WALL
    return EVENTS if record.get("no_graph_because") else GRAPH


def _timed(folders: Iterable[Path]) -> list[dict]:
    """Timed forward passes of layers that a document may quote, newest first."""
    found = []
    for path in sorted(path for folder in folders for path in folder.glob("*.jsonl")):
        rows, problems = read(path)
        for problem in problems:
            print(problem, file=sys.stderr)
        found += [
            row
            for row in rows
            if row.get("kind") == "latency"
            and (row["subject"], row["pass"], row["status"]) == ("layer", "forward", "timed")
            and row["role"] in ROLES
            and not row["smoke"]
        ]
    return sorted(found, key=lambda row: row["environment"]["time"], reverse=True)


def _median(samples: list[float]) -> float:
    ordered = sorted(samples)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
