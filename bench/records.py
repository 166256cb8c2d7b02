"""Stored measurements: append-only JSON Lines, one record a line, raw samples and environment included."""

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import headcount
from headcount.bench.errors import UsageError, read_file
from headcount.models.configs.base import AttentionConfig, ConfigError
from headcount.models.configs.layers import layer

SCHEMA_VERSION = 1

NOT_COMPARED = ("bias", "form")
"""No recorded layer has biases, and which heads are computed is a matter of how a layer is run."""

GRAPH, EVENTS, WALL = "graph", "events", "wall"
"""How a call is timed."""

ROLES = ("subject", "dense")
"""Arms that are the layer of their name: itself, and MoH with every head computed."""


TEXT, WHOLE, OBJECT, RATIO, SAMPLES = "a text", "a whole number", "an object", "a ratio", "positive numbers"
OPTIONAL = ("implementation_used", "largest_share", "gpu_ms", "wall_ms", "noise", "noise_wall", "to_mha", "tax")
OPTIONAL += ("to_mha_verdict", "to_dense", "to_dense_verdict")
OPTIONAL += ("seq_len", "batch_size", "tokens", "error", "floor_ms", "peaks", "timed_by")
"""What a record may have None for."""
ABSENT = ("noise", "noise_wall", "timed_by", "least_bytes", "executed_macs", "executed_bytes", "arms_in_cell", "blocks")
"""What records of earlier versions may lack."""
_CELL = {"cell": TEXT}
FIELDS: Mapping[str, Mapping[str, str]] = {
    "latency": {
        **dict.fromkeys(("cell", "subject", "name", "dtype", "routing", "pass", "arm", "role"), TEXT),
        **dict.fromkeys(("implementation", "implementation_used", "status", "timed_by"), TEXT),
        **dict.fromkeys(("seq_len", "batch_size", "tokens", "macs"), WHOLE),
        **dict.fromkeys(("arms_in_cell", "blocks", "least_bytes", "executed_macs", "executed_bytes"), WHOLE),
        **dict.fromkeys(("noise", "noise_wall", "to_mha", "tax", "to_dense"), RATIO),
        **dict.fromkeys(("to_mha_verdict", "to_dense_verdict"), TEXT),
        **dict.fromkeys(("wall_ms", "gpu_ms"), SAMPLES),
        "floor_ms": "a number",
        "largest_share": "a number",
        "error": "a number",
        "smoke": "true or false",
        "peaks": OBJECT,
        "environment": OBJECT,
    },
    "latency-begun": _CELL,
    "latency-left": _CELL,
    "latency-broken": _CELL | {"label": TEXT, "status": TEXT},
    "latency-gate": _CELL | {"arm": TEXT, "status": TEXT, "shown": OBJECT},
}
"""Kind of a record -> what whoever reads it relies on."""
_IS: Mapping[str, Callable[[Any], bool]] = {
    TEXT: lambda value: isinstance(value, str),
    WHOLE: lambda value: type(value) is int and 0 <= value < 2**63,
    OBJECT: lambda value: isinstance(value, dict),
    RATIO: lambda value: isinstance(value, dict) and all(_number(value.get(name)) for name in ("value", "low", "high")),
    SAMPLES: lambda value: isinstance(value, list) and bool(value) and all(_number(x) and x > 0 for x in value),
    "a number": lambda value: _number(value),
    "true or false": lambda value: isinstance(value, bool),
}


def _number(value: Any) -> bool:
    # a whole number of hundreds of digits is no float
    return type(value) in (int, float) and -1e300 < value < 1e300


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


def append(path: Path, *found: Mapping[str, Any]) -> None:
    """Add records as whole lines, all of them or none. UsageError where the file cannot be written."""
    lines = (
        json.dumps({"schema_version": SCHEMA_VERSION, **one}, ensure_ascii=False, allow_nan=False) for one in found
    )
    data = "".join(f"{line}\n" for line in lines).encode()
    if path.exists() and not path.is_file():
        raise UsageError(f"cannot write {path}: it is no file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+", buffering=0) as file, _alone(file):
            size = file.seek(0, os.SEEK_END)
            # A line that a killed run left unfinished must not swallow this one.
            unfinished = size and not _ends_with_newline(file)
            try:
                _write(file, b"\n" * bool(unfinished) + data)
            except OSError:
                file.truncate(size)
                raise
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


@contextmanager
def _alone(file: BinaryIO) -> Iterator[None]:
    """No other process appends to ``file`` in the block, where this system can see to it."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    fcntl.flock(file, fcntl.LOCK_EX)
    # closing the file lets the others in
    yield


def _write(file: BinaryIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        # a disk that is nearly full takes a part
        rest = rest[file.write(rest) :]


def _ends_with_newline(file: BinaryIO) -> bool:
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def read(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The records of a file in order, and one line for each line of it that is none, naming file and line.

    A line is one where it is an object of this schema version, with what FIELDS says of its kind. UsageError where the
    file cannot be read.
    """
    records, problems = [], []
    for number, line in enumerate(read_file(path).split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line, parse_constant=_refused)
        except (ValueError, RecursionError) as error:
            problems.append(f"{path}:{number}: not JSON: {_short(error)}")
            continue
        if not isinstance(record, dict) or record.get("schema_version") != SCHEMA_VERSION:
            problems.append(f"{path}:{number}: not a record of schema version {SCHEMA_VERSION}")
            continue
        if wrong := _wrong(record):
            problems.append(f"{path}:{number}: {wrong}")
            continue
        records.append(record)
    return records, problems


def briefly(problems: Sequence[str]) -> str:
    """The first of what is wrong with a file's lines, and how many more there are."""
    more = f", and {len(problems) - 1} more lines that are none" if len(problems) > 1 else ""
    return f"{problems[0]}{more}"


def _refused(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _short(said: Any) -> str:
    """The first words of what a file makes us say, on one line and fit for a terminal."""
    return re.sub(r"[^ -~]", "?", str(said))[:80]


def _wrong(record: Mapping[str, Any]) -> str:
    """What makes a record unfit for those that read it; empty where nothing does."""
    kind = record.get("kind")
    fields = FIELDS.get(kind, {}) if isinstance(kind, str) else {}
    for name, what in fields.items():
        if name not in record:
            if name not in ABSENT:
                return f"a {kind} record without {name}"
        elif not _IS[what](record[name]) and not (record[name] is None and name in OPTIONAL):
            return f"{name} is {_short(repr(record[name]))}, no {what.removeprefix('a ').removeprefix('an ')}"
    environment = record["environment"] if "environment" in fields else dict.fromkeys(("device", "time"), "")
    without = [name for name in ("device", "time") if not isinstance(environment.get(name), str)]
    return f"environment without {without[0]}" if without else ""


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
        try:
            config = layer(record["name"])
        except ConfigError:
            # of a version that knows more layers
            continue
        if (config.variant, record["seq_len"]) != (like.variant, seq_len):
            continue
        # where every head is to be computed, an arm that skips some is another layer
        skips = next((arm.form for arm in config.implementations if arm.name == record["implementation"]), None)
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
        if problems:
            print(briefly(problems), file=sys.stderr)
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
