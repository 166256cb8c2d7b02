"""Stored measurements: append-only JSON Lines, one record a line, with raw samples and the environment."""

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import headcount
from headcount.bench.errors import UsageError, excerpt, read_file
from headcount.models.configs.base import AttentionConfig, ConfigError
from headcount.models.configs.layers import layer

try:
    import fcntl
except ImportError:
    # a system without file locks
    fcntl = None

SCHEMA_VERSION = 2
_START = b'{"schema_version": '
"""The first bytes of a record."""

NOT_COMPARED = ("bias", "form")
"""Sizes in which a recorded layer may differ: none has biases, and which heads are computed depends on the
implementation."""

GRAPH, EVENTS, WALL = "graph", "events", "wall"
"""Kinds of timing of a call."""

LATENCY, CHECK = "latency", "latency-check"
"""Kinds of records: a timed implementation, a correctness check."""

AGREES = "agrees"
"""Status of a check whose implementation agrees with the reference."""

ROLES = ("subject", "dense")
"""Roles of rows whose layer is that of their name: the layer itself, and MoH with every head computed."""

NEEDED: dict[str, dict[str, Sequence[str]]] = {
    LATENCY: {
        "text": ("cell", "layer", "implementation", "dtype", "routing", "pass", "status", "subject", "name", "role"),
        "whole number": ("macs",),
        "true or false": ("smoke",),
        "object with device and time": ("environment",),
    },
    CHECK: {"text": ("cell", "layer", "implementation", "dtype", "routing", "pass", "status")},
}
"""Keys that every record of a kind has, by what their values are; records have further keys."""
OPTIONAL: dict[str, dict[str, Sequence[str]]] = {
    LATENCY: {
        "text": ("implementation_used", "to_mha_verdict", "to_dense_verdict", "timed_by"),
        "whole number": ("seq_len", "batch_size", "tokens", "blocks", "least_bytes", "executed_macs", "executed_bytes"),
        "number": ("roofline_ms", "largest_share", "error"),
        "ratio": ("to_mha", "overhead", "to_dense", "noise_floor", "noise_floor_wall"),
        "positive numbers": ("wall_ms", "gpu_ms"),
        "object": ("peaks",),
        "kernels": ("kernels",),
    },
    CHECK: {"text": ("error", "bound", "replay", "same", "core"), "whole number": ("seq_len", "choices")},
}
"""Keys whose value may be null; records of earlier versions lack some, which is read as null."""
FITS: dict[str, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str),
    "true or false": lambda value: isinstance(value, bool),
    "number": lambda value: _is_number(value),
    "whole number": lambda value: type(value) is int and 0 <= value < 2**63,
    "positive numbers": lambda value: isinstance(value, list) and bool(value) and all(map(_is_time, value)),
    "object": lambda value: isinstance(value, dict),
    "ratio": lambda value: _has(value, ("value", "low", "high"), _is_number),
    "kernels": lambda value: isinstance(value, list) and bool(value) and all(map(_is_kernel, value)),
    "object with device and time": lambda value: _has(value, ("device", "time"), FITS["text"]),
}
"""Whether a value is what the name says; a ratio has its bootstrap interval."""


def _has(value: Any, keys: Sequence[str], fits: Callable[[Any], bool]) -> bool:
    return isinstance(value, dict) and all(fits(value.get(key)) for key in keys)


def _is_kernel(value: Any) -> bool:
    return _has(value, ("us",), _is_number)


def _is_number(value: Any) -> bool:
    # a whole number of hundreds of digits is no float
    return type(value) in (int, float) and -1e300 < value < 1e300


def _is_time(value: Any) -> bool:
    return _is_number(value) and value > 0


def shipped() -> Path:
    """Return the folder of the measurements that come with this software."""
    root = headcount.CHECKOUT or Path(headcount.__file__).parent
    return root / "reports" / "records"


def writable() -> Path:
    """Return the folder for new measurements: that of the shipped ones in a checkout, else the user's data folder."""
    if headcount.CHECKOUT:
        return shipped()
    import platformdirs

    return platformdirs.user_data_path("headcount", appauthor=False) / "records"


def folders() -> tuple[Path, ...]:
    """Return every folder that measurements are read from, each once."""
    return tuple(dict.fromkeys((shipped(), writable())))


def append(path: Path, *found: Mapping[str, Any]) -> None:
    """Append records as whole lines, all or none. Raises UsageError where the file cannot be written or has others."""
    lines = (
        json.dumps({"schema_version": SCHEMA_VERSION, **one}, ensure_ascii=False, allow_nan=False) for one in found
    )
    data = "".join(f"{line}\n" for line in lines).encode()
    if path.exists() and not path.is_file():
        raise UsageError(f"cannot write {path}: it is no file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+", buffering=0) as file:
            if fcntl:
                # until the file is closed
                fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            if not _START.startswith(file.read(len(_START))):
                raise UsageError(f"cannot append to {path}: it does not begin with a record")
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            # a line that a killed run left unfinished must not swallow this one
            rest = memoryview(b"\n" * (file.read(1) not in (b"", b"\n")) + data)
            try:
                while rest:
                    # a nearly full disk accepts a part of the line
                    rest = rest[file.write(rest) :]
            except OSError:
                file.truncate(size)
                raise
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


def read(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the records of a file in order, and a message with file and line for each line that is no record.

    A record is an object of this schema version with the keys that NEEDED and OPTIONAL state for its kind. Keys of
    earlier versions are replaced by the present ones. Raises UsageError where the file cannot be read.
    """
    records, problems = [], []
    for number, line in enumerate(read_file(path).split(b"\n"), 1):
        try:
            records += [_parse(line)] if line.strip() else []
        except ValueError as error:
            problems.append(f"{path}:{number}: {error}")
    return records, problems


def briefly(problems: Sequence[str]) -> str:
    """Return the first problem of a file and the number of further lines with one."""
    more = f", and {len(problems) - 1} more lines that are none" if len(problems) > 1 else ""
    return f"{problems[0]}{more}"


def _parse(line: bytes) -> dict[str, Any]:
    """Return the record of a line. Raises ValueError, with the reason, for a line that readers cannot use."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {excerpt(error)}") from None
    if not isinstance(record, dict) or record.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(f"not a record of schema version {SCHEMA_VERSION}")
    kind = record.get("kind")
    if not isinstance(kind, str) or kind not in NEEDED:
        return record
    for stated in (NEEDED[kind], OPTIONAL[kind]):
        for name, key in ((name, key) for name, keys in stated.items() for key in keys):
            value = record.setdefault(key, None)
            if value is None and stated is NEEDED[kind]:
                raise ValueError(f"a {kind} record without {key}")
            if value is not None and not FITS[name](value):
                raise ValueError(f"{key} is {excerpt(value)}, no {name}")
    return record


def place(root: Path, device: str, date: str, commit: str | None) -> Path:
    """Return the file of a run: ``<root>/<device>/<date>-<commit>.jsonl``."""
    return root / slug(device) / f"{date}-{(commit or 'no-commit')[:10]}.jsonl"


def slug(text: str) -> str:
    """Return ``text`` as a file name: lower case, digits, hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def layer_times(
    roots: Sequence[Path], device: str, like: AttentionConfig, seq_len: int, letters: tuple[str, ...]
) -> Mapping[tuple[int, ...], float]:
    """Return the milliseconds of a layer's forward pass by its sizes in ``letters``: the fastest median.

    All times are of one kind: of replayed graphs where every layer has an implementation with a graph, else wall time.
    A replay includes no launches, so it cannot be compared with a call that does.
    The layers equal ``like`` in all other sizes, biases apart; where ``like`` computes every head, rows that skip heads
    are left out. Of a layer recorded with several batch sizes, dtypes or routings the newest run's first is taken.
    Lines that are no records are reported on stderr.
    """
    fields = like.fields_by_letter
    same = {letter: size for letter, size in like.letters().items() if letter not in (*letters, *NOT_COMPARED)}
    newest: dict[tuple[int, ...], dict] = {}
    rows: dict[tuple[int, ...], list[dict]] = {}
    for record in _read_timed_layers(root / slug(device) for root in roots):
        try:
            config = layer(record["name"])
        except ConfigError:
            # recorded by a version with more layers
            continue
        if (config.variant, record["seq_len"]) != (like.variant, seq_len):
            continue
        # where every head is computed, an implementation that skips some is another layer
        skips = next((impl.form for impl in config.implementations if impl.name == record["implementation"]), None)
        if skips not in (None, getattr(like, "form", None)):
            continue
        if any(getattr(config, fields[letter]) != size for letter, size in same.items()):
            continue
        key = tuple(getattr(config, fields[letter]) for letter in letters)
        first = newest.setdefault(key, record)
        if (first["cell"], first["environment"]["time"]) == (record["cell"], record["environment"]["time"]):
            rows.setdefault(key, []).append(record)
    alike = {key: [record["gpu_ms"] for record in own if timed_by(record) == GRAPH] for key, own in rows.items()}
    if not all(alike.values()):
        alike = {key: [record["wall_ms"] for record in own] for key, own in rows.items()}
    return {key: min(map(median, samples)) for key, samples in alike.items()}


def timed_by(record: Mapping[str, Any]) -> str:
    """Return how a record was timed: by ``graph`` replays or eager calls between ``events`` on a GPU, else ``wall``.

    Records of earlier versions do not state it.
    """
    if record.get("timed_by"):
        return record["timed_by"]
    if not record["gpu_ms"]:
        return WALL
    return EVENTS if record.get("no_graph_because") else GRAPH


def common_timing(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """Return how two records may be compared: by graphs where both have one, else by wall time."""
    return GRAPH if timed_by(a) == timed_by(b) == GRAPH else WALL


def comparable_samples(record: Mapping[str, Any], by: str | None = None) -> list[float]:
    """Return milliseconds per block, timed ``by`` graph, events or wall (default: as the record was timed)."""
    return record["wall_ms"] if (by or timed_by(record)) == WALL else record["gpu_ms"]


def _read_timed_layers(folders: Iterable[Path]) -> list[dict]:
    """Return timed forward passes of layers that a document may quote, newest first."""
    found = []
    for path in sorted(path for folder in folders for path in folder.glob("*.jsonl")):
        rows, problems = read(path)
        if problems:
            print(briefly(problems), file=sys.stderr)
        found += [
            row
            for row in rows
            if row.get("kind") == LATENCY
            and (row["subject"], row["pass"], row["status"]) == ("layer", "forward", "timed")
            and row["role"] in ROLES
            and not row["smoke"]
        ]
    return sorted(found, key=lambda row: row["environment"]["time"], reverse=True)
