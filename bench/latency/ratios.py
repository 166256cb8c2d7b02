"""Ratios of the arms of a cell, block by block, and the noise of the same code timed twice."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from headcount.bench.latency import like
from headcount.bench.latency.statistics import Ratio, paired_ratio, verdict
from headcount.bench.latency.timing import Arm

RATIOS = {"to_mha": "mha", "to_inner": "mha-inner", "tax": "mqa", "to_dense": "dense"}
"""The ratios of an arm that routes, and the role of the arm that each is over."""

ROUTED = ("subject", "dense")

NONE = dict.fromkeys(
    ("noise", "noise_wall", *(f"{ratio}{part}" for ratio in RATIOS for part in ("", "_verdict", "_by")))
)
"""The fields of a record before anything is compared."""


def compare(timed: Sequence[tuple[dict[str, Any], Arm]], twin: Arm | None) -> None:
    """Fill the ratios of the records of ``timed`` arms; ``twin`` is the same code as one of them.

    A ratio is of replayed graphs where both arms have one, else of wall time, and is judged by noise of its own kind.
    """
    by_role = {record["role"]: arm for record, arm in timed if record["role"] != "subject"}
    noises = _noises(timed, twin)
    for record, arm in timed:
        record["noise"] = _stored(noises.get(_kind(arm, arm)))
        record["noise_wall"] = _stored(noises.get(like.WALL))
        for key, role in RATIOS.items():
            other = by_role.get(role)
            if other is None or other is arm or record["role"] not in ROUTED:
                continue
            by = _kind(arm, other)
            ratio = paired_ratio(_samples(arm, by), _samples(other, by))
            record[key], record[f"{key}_by"] = asdict(ratio), by
            record[f"{key}_verdict"] = verdict(ratio, noises.get(by))


def _noises(timed: Sequence[tuple[dict[str, Any], Arm]], twin: Arm | None) -> dict[str, Ratio]:
    """The twin over its original, by wall time, and by graphs where there are some."""
    original = next((arm for _, arm in timed if twin is not None and arm.name == twin.name), None)
    if original is None:
        return {}
    kinds = {like.WALL, _kind(twin, original)}
    return {by: paired_ratio(_samples(twin, by), _samples(original, by)) for by in kinds}


def _kind(a: Arm, b: Arm) -> str:
    return like.GRAPH if a.graph is not None and b.graph is not None else like.WALL


def _samples(arm: Arm, by: str) -> list[float]:
    return arm.wall_s if by == like.WALL else arm.gpu_s


def _stored(ratio: Ratio | None) -> dict[str, float] | None:
    return ratio and asdict(ratio)
