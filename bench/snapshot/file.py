"""The file of a lock: JSON with sorted keys, so that a change of a count is a change of a line."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headcount.bench.counting.result import Count
from headcount.bench.errors import UsageError, excerpt, read_file, unique_keys
from headcount.bench.snapshot.difference import LIMITED, natural
from headcount.formulas.ledger import WRITTEN_ELEMENTWISE

LOCK_VERSION = 4
"""Schema version of a lock."""
JSON_VERSION = 2
"""Schema version of the JSON of ``headcount count`` that is read."""
LOCKED_FIELDS = (
    "name", "target", "included", "ledger", "elementwise", "parameters", "collectives", "inputs", "versions",
    "uncalled", "unsupported", "limits", "macs", "elementwise_macs", "params", "sent",
)  # fmt: skip
"""What a lock holds of each count, whose other fields are None when it is read."""


def text(*counts: Count) -> str:
    """Return the lock of counts: the same for the same count, whatever the order of its entries."""
    data = {"lock_version": LOCK_VERSION, "targets": [_as_record(one) for one in counts]}
    return json.dumps(data, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _as_record(count: Count) -> dict[str, Any]:
    data = count.to_json(LOCKED_FIELDS)
    data["elementwise"] = [one for one in data["elementwise"] if one["kind"] == WRITTEN_ELEMENTWISE]
    for name in ("ledger", "elementwise", "parameters", "collectives", "unsupported"):
        data[name].sort(key=lambda one: (natural(one["path"]), json.dumps(one, sort_keys=True)))
    if data["uncalled"]:
        data["uncalled"].sort()
    return data


def read(path: str | Path, target: str | None = None) -> Count:
    """Return the count in a file, in one of several targets that of ``target``. Raises UsageError as :func:`parse`, and
    for a target that the file does not have.
    """
    found = {one.label: one for one in parse(read_file(path), path)}
    if target not in found and (target or len(found) > 1):
        raise UsageError(f"{path} has the targets {', '.join(found)}; one is expected, not {target or 'all'}")
    return found[target or next(iter(found))]


def parse(content: str | bytes, path: str | Path) -> tuple[Count, ...]:
    """Return the counts, one for each target, in the text ``content`` of the file ``path``.

    It is a lock, or the output of ``headcount count … --format json``. Raises UsageError for a text that is neither, or
    whose sums are not those of its entries.
    """
    try:
        data = json.loads(content, object_pairs_hook=unique_keys)
        # half a pair of surrogates is a text in JSON, but none that can be written or name a file
        json.dumps(data, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{path} is no lock, which headcount lock TARGET --out FILE writes: not JSON, {excerpt(error)}"
        ) from None
    kinds = {"lock_version": (LOCK_VERSION, _of_lock), "schema_version": (JSON_VERSION, _of_output)}
    key = next((key for key in kinds if isinstance(data, dict) and key in data), None)
    if key is None:
        raise UsageError(f"{path} is neither a lock nor the JSON of headcount count")
    known, counts_of = kinds[key]
    if data[key] != known or isinstance(data[key], bool):
        raise UsageError(f"{path} has {key} {excerpt(data[key])}; this software reads {known}")
    try:
        found = tuple(counts_of(data))
        if len({one.label for one in found}) < max(1, len(found)):
            raise ValueError("it has a target twice, or none")
    except KeyError as error:
        raise UsageError(f"{path} is not the count of a module: it has no {error}") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{path} is broken: {excerpt(error)}") from None
    return found


def _of_lock(data: Mapping[str, Any]) -> Iterator[Count]:
    """Yield the counts of a lock. Raises KeyError, TypeError and ValueError for what is not one."""
    for record in data["targets"]:
        given = {name: record[name] for name in LOCKED_FIELDS} | record
        # of the audit a lock has the unsupported operations
        given["audit"] = given.pop("unsupported")
        count = Count.from_json(given)
        if unknown := (count.limits or {}).keys() - LIMITED.keys():
            raise ValueError(f"limits are of {' and '.join(LIMITED)}, not of {', '.join(unknown)}")
        yield count


def _of_output(data: Mapping[str, Any]) -> Iterator[Count]:
    """Yield the count that a command printed. Raises KeyError, TypeError and ValueError for what is none."""
    counts = [table["count"] for table in data["tables"] if "count" in table]
    if not counts:
        raise KeyError("count")
    yield from map(Count.from_json, counts)


def is_count(path: str | Path) -> bool:
    """Return whether a JSON file is meant as a count: a configuration is an object without a version of ours."""
    try:
        data = json.loads(read_file(path))
    except (ValueError, RecursionError):
        return True
    return not isinstance(data, dict) or "lock_version" in data or "schema_version" in data
