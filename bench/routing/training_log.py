"""The log of a training run: how many tokens each expert took, layer by layer, as steps went by."""

import json
from typing import Any

from headcount.bench.errors import UsageError, read_file

Log = list[tuple[int, dict[str, list[int]]]]
"""Steps, each with the tokens of every expert by layer."""


def read(path: str) -> Log:
    """The records of a file, one on each line. Raises UsageError that names the first line that is none."""
    found = []
    for number, line in enumerate(read_file(path).splitlines(), 1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if not _is_record(record):
            raise UsageError(f"{path}: line {number} is no log record with step and tokens_per_expert")
        found.append((record["step"], record["tokens_per_expert"]))
    return found


def _is_record(record: Any) -> bool:
    if not isinstance(record, dict) or not _is_number(record.get("step")):
        return False
    layers = record.get("tokens_per_expert")
    return isinstance(layers, dict) and all(map(_are_counts, layers.values()))


def _are_counts(counts: Any) -> bool:
    return isinstance(counts, list) and bool(counts) and all(map(_is_number, counts))


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63
