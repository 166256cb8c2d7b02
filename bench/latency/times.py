"""Times of layers from stored latency records, for a search to compare. Importable without torch."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from headcount.bench import records
from headcount.bench.latency.arms import layer_config
from headcount.models.configs.base import AttentionConfig

NOT_COMPARED = ("bias", "form")
"""No recorded layer has biases, and which heads are computed is a matter of how a layer is run."""

ROLES = ("subject", "dense")
"""Arms that are the layer of their name: itself, and MoH with every head computed."""


def layer_times(
    roots: Sequence[Path], device: str, like: AttentionConfig, seq_len: int, letters: tuple[str, ...]
) -> Mapping[tuple[int, ...], float]:
    """Milliseconds of a layer's forward pass by its sizes in ``letters``: the fastest implementation's median.

    The layers are ``like`` in everything else, biases apart; where that computes every head, runs that skip some
    are left out. Of a layer recorded with several batch sizes, types or routings the newest run's first is taken.
    Lines that are no records are named on stderr.
    """
    fields = like.fields_by_letter
    same = {letter: size for letter, size in like.letters().items() if letter not in (*letters, *NOT_COMPARED)}
    newest: dict[tuple[int, ...], dict] = {}
    fastest: dict[tuple[int, ...], float] = {}
    for record in _records(root / records.slug(device) for root in roots):
        config = layer_config(record["name"])
        if (config.variant, record["seq_len"]) != (like.variant, seq_len):
            continue
        if getattr(like, "form", None) == "released" and record["implementation"] == "ragged":
            continue
        if any(getattr(config, fields[letter]) != size for letter, size in same.items()):
            continue
        key = tuple(getattr(config, fields[letter]) for letter in letters)
        first = newest.setdefault(key, record)
        if (first["cell"], first["environment"]["time"]) == (record["cell"], record["environment"]["time"]):
            fastest[key] = min(fastest.get(key, float("inf")), _median(record["gpu_ms"] or record["wall_ms"]))
    return fastest


def _records(folders: Iterable[Path]) -> list[dict]:
    """Timed forward passes of layers that a document may quote, newest first."""
    found = []
    for path in sorted(path for folder in folders for path in folder.glob("*.jsonl")):
        rows, problems = records.read(path)
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
