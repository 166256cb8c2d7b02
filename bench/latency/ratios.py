"""Compute the ratios between the implementations of a case, block by block, and the noise floor of the A/A control."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from headcount.bench import records
from headcount.bench.latency.statistics import Ratio, paired_ratio, verdict
from headcount.bench.latency.timing import TimedCall

RATIOS = {"to_mha": "mha", "to_inner": "mha-inner", "tax": "mqa", "to_dense": "dense"}
"""Ratio -> role of the row that is its denominator. ``tax`` is the routing overhead, over dense MQA."""

ROUTED = ("subject", "dense")

NONE = dict.fromkeys(
    ("noise", "noise_wall", *(f"{ratio}{part}" for ratio in RATIOS for part in ("", "_verdict", "_by")))
)
"""The fields of a record before anything is compared."""


def compare(timed: Sequence[tuple[dict[str, Any], TimedCall]], control: TimedCall | None) -> None:
    """Fill the ratios of the records of ``timed`` implementations; ``control`` repeats one of them.

    A ratio is of replayed graphs where both have one, else of wall time, and is judged by the noise floor of its kind.
    """
    by_role = {record["role"]: impl for record, impl in timed if record["role"] != "subject"}
    noises = _noises(timed, control)
    for record, impl in timed:
        record["noise"] = _stored(noises.get(_kind(impl, impl)))
        record["noise_wall"] = _stored(noises.get(records.WALL))
        for key, role in RATIOS.items():
            other = by_role.get(role)
            if other is None or other is impl or record["role"] not in ROUTED:
                continue
            by = _kind(impl, other)
            ratio = paired_ratio(_samples(impl, by), _samples(other, by))
            record[key], record[f"{key}_by"] = asdict(ratio), by
            record[f"{key}_verdict"] = verdict(ratio, noises.get(by))


def _noises(timed: Sequence[tuple[dict[str, Any], TimedCall]], control: TimedCall | None) -> dict[str, Ratio]:
    """Return the control over its original, by wall time, and by graphs where both have one."""
    original = next((impl for _, impl in timed if control is not None and impl.name == control.name), None)
    if original is None:
        return {}
    kinds = {records.WALL, _kind(control, original)}
    return {by: paired_ratio(_samples(control, by), _samples(original, by)) for by in kinds}


def _kind(a: TimedCall, b: TimedCall) -> str:
    return records.GRAPH if a.graph is not None and b.graph is not None else records.WALL


def _samples(impl: TimedCall, by: str) -> list[float]:
    return impl.wall_s if by == records.WALL else impl.gpu_s


def _stored(ratio: Ratio | None) -> dict[str, float] | None:
    return ratio and asdict(ratio)
