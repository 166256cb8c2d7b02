"""Stored measurements: append-only JSON Lines, one record a line, with raw samples and the environment."""

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from pathlib import Path
from statistics import median
from types import UnionType
from typing import Any, ClassVar, get_args

import headcount
from headcount.bench.errors import UsageError, excerpt, read_file
from headcount.bench.result import Row, to_json
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

NO_GRAPH = "no CUDA graph, so GPU time includes launches and waits"

TIMED, AGREES = "timed", "agrees"
"""Status of an implementation that was timed, and of one that was only checked and agrees with the reference."""

ROLES = ("subject", "dense")
"""Roles of rows whose layer is that of their name: the layer itself, and MoH with every head computed."""

Samples = list[float]
Interval = Mapping[str, float]
"""A ratio of times: its ``value`` and the ends of its 95 % interval, ``low`` and ``high``."""
Environment = Mapping[str, Any]
"""What env.environment returns."""
Kernel = dict[str, Any]
"""``name``, ``calls`` and ``us`` of a kernel of one call."""


class Record(Row):
    """Base of the dataclasses of records, which are rows of tables too."""

    kind: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """Return the fields as a JSON object."""
        found = {_KEYS.get(one.name, one.name): getattr(self, one.name) for one in fields(self)}
        return {"kind": self.kind, **found}


@dataclass(frozen=True, kw_only=True)
class LatencyRecord(Record):
    """An implementation of a timing case as measured, and a row of a table.

    Fields are None where something was not measured, and where an earlier version did not record it.

    Attributes:
        cell: the key of the timing case.
        subject: ``layer`` or ``model``; its name is ``name``.
        which: the pass: forward, backward, both or decode; ``pass`` in JSON.
        blocks: number of samples; 0 where implementations are checked and not timed.
        again: a second measurement, stored in addition to the first.
        tokens: tokens of a call.
        layer: name of the layer or model that ran: ``name``, or a dense one that it is compared with.
        role: ``subject``, or what subjects are compared with (implementations.ImplSpec).
        implementation_used: the path that ``implementation`` took.
        largest_share: share of the tokens of the expert with the most.
        checked_in: the case whose check ``error`` and ``choices`` are of; None where it is this one.
        error: relative error against the reference; at most ``bound``.
        choices: numbers of routed ``tokens``, of ``clear`` choices, and of ``other`` ones than the reference's.
        backends: kernels of the fused attention core.
        status: TIMED, AGREES, or why there is no time.
        macs: multiply-accumulates that are needed; ``executed_macs`` those that run.
        least_bytes: bytes that any implementation moves; ``executed_bytes`` those of this one.
        wall_ms: milliseconds of a call by the host's clock, for each block, or for the first ones where graphs are
            compared.
        gpu_ms: the same by the GPU's clock: of graph replays, or of calls where ``no_graph_because`` says why.
        replay_error: relative error of a graph replayed on other inputs.
        sets: number of input sets, whose used ones have ``rotated_bytes``.
        roofline_ms: the bound by ``peaks``.
        noise_floor: time over that of the same code, of samples as ``timed_by``; ``noise_floor_wall`` of wall time.
        to_mha: time over that of MHA of the same model width.
        overhead: time over that of dense MQA of the same K and D.
        to_dense: time over that of the layer with every head, or of the dense model.
        telemetry: the range of the GPU's clock, and the blocks at a slow one.
        case_s: seconds of each step of the case: to prepare and check all its rows, to time and to profile them.
    """

    kind = "latency"
    cell: str
    subject: str
    name: str
    seq_len: int | None = None
    batch_size: int | None = None
    dtype: str
    device: str | None = None
    routing: str
    blocks: int | None = None
    which: str
    again: bool = False
    tokens: int | None = None
    layer: str
    role: str
    implementation: str
    implementation_used: str | None = None
    largest_share: float | None = None
    checked_in: str | None = None
    error: float | None = None
    bound: float | None = None
    choices: dict[str, Any] | None = None
    backends: list[str] | None = None
    status: str
    macs: int
    least_bytes: int | None = None
    executed_macs: int | None = None
    executed_bytes: int | None = None
    wall_ms: Samples | None = None
    gpu_ms: Samples | None = None
    no_graph_because: str | None = None
    calls_per_block: int | None = None
    replay_error: float | None = None
    sets: int | None = None
    rotated_bytes: int | None = None
    peak_memory_bytes: int | None = None
    has_same_bits: bool | None = None
    kernels: list[Kernel] | None = None
    roofline_ms: float | None = None
    peaks: dict[str, Any] | None = None
    smoke: bool
    noise_floor: Interval | None = None
    noise_floor_wall: Interval | None = None
    to_mha: Interval | None = None
    to_mha_by: str | None = None
    to_mha_verdict: str | None = None
    overhead: Interval | None = None
    overhead_by: str | None = None
    overhead_verdict: str | None = None
    to_dense: Interval | None = None
    to_dense_by: str | None = None
    to_dense_verdict: str | None = None
    telemetry: dict[str, Any] | None = None
    case_s: dict[str, Any] | None = None
    environment: Environment

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "LatencyRecord":
        """Return the record of a JSON object; keys that are no field are left out.

        Raises ValueError, with the reason, where a field is missing or is not of its type.
        """
        values = {}
        for one in fields(cls):
            key = _KEYS.get(one.name, one.name)
            value = one.default if found.get(key) is None else found[key]
            if value is MISSING:
                raise ValueError(f"a {cls.kind} record without {key}")
            what, fits = FITS[_type_of(one)]
            if value is not None and not fits(value):
                raise ValueError(f"{key} is {excerpt(value)}, no {what}")
            values[one.name] = value
        return cls(**values)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as a JSON object, and ``timed_by``."""
        return super().to_json() | {"timed_by": self.timed_by}

    @property
    def timed_by(self) -> str | None:
        """How a call was timed: by ``graph`` replays or eager calls between ``events`` on a GPU, else ``wall``."""
        if not self.gpu_ms:
            return WALL if self.wall_ms else None
        return EVENTS if self.no_graph_because else GRAPH

    def common_timing(self, other: "LatencyRecord") -> str:
        """Return how two records may be compared: by graphs where both have one, else by wall time."""
        return GRAPH if self.timed_by == other.timed_by == GRAPH else WALL

    def samples(self, by: str | None = None) -> Samples:
        """Return milliseconds per block, timed ``by`` graph, events or wall (default: as the record was timed)."""
        return self.wall_ms if (by or self.timed_by) == WALL else self.gpu_ms

    @property
    def over_dense(self) -> Interval | None:
        """The time over that of the dense layer of the same heads, or of the dense model."""
        return self.overhead or self.to_dense

    @property
    def over_dense_verdict(self) -> str | None:
        """The verdict on ``over_dense``."""
        return self.overhead_verdict if self.overhead else self.to_dense_verdict

    @property
    def notes(self) -> list[str]:
        """Footnotes: why the row has no time, or no graph, and how many blocks had a slow clock."""
        found = [] if self.status in (TIMED, AGREES) else [self.status]
        if self.no_graph_because:
            found.append(f"{NO_GRAPH}: {self.no_graph_because}")
        slow = (self.telemetry or {}).get("slow_blocks")
        if slow and self.status == TIMED:
            found.append(f"in {len(slow)} of {self.blocks} blocks the clock was below 0.9 of the run's median")
        return found

    @property
    def failures(self) -> list[str]:
        """A line for a row that is wrong or failed, or not checked: to be timed without enough memory is neither."""
        if self.status in (TIMED, AGREES) or self.blocks and self.status.startswith("out of memory"):
            return []
        return [f"{self.cell}, {self.layer} {self.implementation}: {self.status}"]


_KEYS = {"which": "pass"}
"""Keys of JSON that are no names in Python."""
FITS: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    str: ("text", lambda value: isinstance(value, str)),
    bool: ("true or false", lambda value: isinstance(value, bool)),
    float: ("number", lambda value: _is_number(value)),
    int: ("whole number", lambda value: type(value) is int and 0 <= value < 2**63),
    Samples: ("positive numbers", lambda value: _is_list(value, _is_time)),
    Interval: ("ratio", lambda value: _has(value, ("value", "low", "high"), _is_number)),
    Environment: ("object with device and time", lambda value: _has(value, ("device", "time"), FITS[str][1])),
    dict[str, Any]: ("object", lambda value: isinstance(value, dict)),
    list[Kernel]: ("kernels", lambda value: _is_list(value, lambda kernel: _has(kernel, ("us",), _is_number))),
    list[str]: ("texts", lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value)),
}
"""By type of a field, what a value is called, and whether it is one."""


def _type_of(one: Field) -> Any:
    """Return the type of a field's values other than None."""
    return get_args(one.type)[0] if isinstance(one.type, UnionType) else one.type


def _has(value: Any, keys: Sequence[str], fits: Callable[[Any], bool]) -> bool:
    return isinstance(value, dict) and all(fits(value.get(key)) for key in keys)


def _is_list(value: Any, fits: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and bool(value) and all(map(fits, value))


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


def append(path: Path, *found: Record | Mapping[str, Any]) -> None:
    """Append records as whole lines, all or none. Raises UsageError where the file cannot be written or has others."""
    stored = [{"schema_version": SCHEMA_VERSION, **to_json(one)} for one in found]
    data = "".join(f"{json.dumps(one, ensure_ascii=False, allow_nan=False)}\n" for one in stored).encode()
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


def read(path: Path) -> tuple[list[Any], list[str]]:
    """Return the records of a file in order, and a message with file and line for each line that is no record.

    Those of latencies are LatencyRecords, others the objects of JSON. Raises UsageError where the file cannot be read.
    """
    records, problems = [], []
    for number, line in enumerate(read_file(path).split(b"\n"), 1):
        try:
            records += [_parse(line)] if line.strip() else []
        except ValueError as error:
            problems.append(f"{path}:{number}: {error}")
    return records, problems


def read_latencies(path: Path) -> tuple[list[LatencyRecord], list[str]]:
    """Return the records of latencies among those that ``read`` returns, and its messages."""
    records, problems = read(path)
    return [one for one in records if isinstance(one, LatencyRecord)], problems


def briefly(problems: Sequence[str]) -> str:
    """Return the first problem of a file and the number of further lines with one."""
    more = f", and {len(problems) - 1} more lines that are none" if len(problems) > 1 else ""
    return f"{problems[0]}{more}"


def _parse(line: bytes) -> LatencyRecord | dict[str, Any]:
    """Return the record of a line. Raises ValueError, with the reason, for a line that readers cannot use."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {excerpt(error)}") from None
    if not isinstance(record, dict) or record.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(f"not a record of schema version {SCHEMA_VERSION}")
    return LatencyRecord.from_json(record) if record.get("kind") == LatencyRecord.kind else record


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
    letter_fields = like.fields_by_letter
    same = {letter: size for letter, size in like.letters().items() if letter not in (*letters, *NOT_COMPARED)}
    newest: dict[tuple[int, ...], LatencyRecord] = {}
    rows: dict[tuple[int, ...], list[LatencyRecord]] = {}
    for record in _read_timed_layers(root / slug(device) for root in roots):
        try:
            config = layer(record.name)
        except ConfigError:
            # recorded by a version with more layers
            continue
        if (config.variant, record.seq_len) != (like.variant, seq_len):
            continue
        # where every head is computed, an implementation that skips some is another layer
        skips = next((impl.form for impl in config.implementations if impl.name == record.implementation), None)
        if skips not in (None, getattr(like, "form", None)):
            continue
        if any(getattr(config, letter_fields[letter]) != size for letter, size in same.items()):
            continue
        key = tuple(getattr(config, letter_fields[letter]) for letter in letters)
        first = newest.setdefault(key, record)
        if (first.cell, first.environment["time"]) == (record.cell, record.environment["time"]):
            rows.setdefault(key, []).append(record)
    alike = {key: [record.gpu_ms for record in own if record.timed_by == GRAPH] for key, own in rows.items()}
    if not all(alike.values()):
        alike = {key: [record.wall_ms for record in own] for key, own in rows.items()}
    return {key: min(map(median, samples)) for key, samples in alike.items()}


def _read_timed_layers(folders: Iterable[Path]) -> list[LatencyRecord]:
    """Return timed forward passes of layers that a document may quote, newest first."""
    found = []
    for path in sorted(path for folder in folders for path in folder.glob("*.jsonl")):
        rows, problems = read_latencies(path)
        if problems:
            print(briefly(problems), file=sys.stderr)
        found += [
            row
            for row in rows
            if (row.subject, row.which, row.status) == ("layer", "forward", TIMED)
            and row.role in ROLES
            and not row.smoke
        ]
    return sorted(found, key=lambda row: row.environment["time"], reverse=True)
