"""What a measured row was to take at least, by a data sheet, beside what it took; and what it took a second time."""

from collections.abc import Mapping, Sequence
from typing import Any

from headcount.bench import records
from headcount.bench.latency import estimate
from headcount.bench.latency.statistics import quantile
from headcount.bench.table import Column
from headcount.reports import latency, markdown
from headcount.reports.facts import Facts

_ROW = (
    Column("layer", "layer or model"),
    Column("arm", "arm"),
    Column("seq_len", "T", kind="int"),
    Column("batch_size", "B", kind="int"),
)
_ESTIMATE = (
    *_ROW,
    Column("estimate_ms", "estimate, no measure: at least ms", kind="fixed", digits=4),
    Column("measured_ms", "measured ms", kind="fixed", digits=4),
    Column("by", "timed by"),
    Column("over", "measured over estimate", kind="fixed", digits=2),
)
_AGAIN = (
    *_ROW,
    Column("first_ms", "ms", kind="fixed", digits=4),
    Column("second_ms", "ms again", kind="fixed", digits=4),
    Column("blocks", "blocks", kind="int"),
    Column("over", "second over first", kind="fixed", digits=3),
)


def beside_measured(facts: Facts) -> str:
    """Tables of each CUDA device: estimate and measurement, and first and second measurement where there are two."""
    devices = latency.of_type(facts, "cuda")
    if not devices:
        return latency.NOT_MEASURED["cuda"]
    repeats = [record for record in facts.stored("latency") if record.get("again") and not record["smoke"]]
    parts = []
    for device, measured in devices.items():
        rows = [row for row in map(_estimated, measured) if row]
        parts.append(f"**{device}**")
        parts.append(markdown.table(list(_ESTIMATE), rows) if rows else "No estimate: no hardware that is named.")
        second = [record for record in repeats if record["environment"]["device"] == device]
        if found := _twice(measured, second):
            parts.append(markdown.table(list(_AGAIN), found))
    return "\n\n".join(parts)


def _named(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: record[key] for key in ("seq_len", "batch_size")} | {
        "layer": f"{record['layer']}, {record['pass']}",
        "arm": record["implementation"],
    }


def _estimated(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """A row; None of a record that was not timed, or of a device without figures."""
    least = estimate.of_record(record)
    if least is None or record["status"] != "timed":
        return None
    measured = latency.median_ms(record)
    times = {"estimate_ms": least, "measured_ms": measured, "over": measured / least}
    return _named(record) | times | {"by": records.timed_by(record)}


def _twice(first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of what was timed twice, by what both were timed by."""
    keys = ("name", "layer", "implementation", "seq_len", "batch_size", "dtype", "pass", "routing")
    known = {tuple(r[key] for key in keys): r for r in first if r["status"] == "timed"}
    rows = []
    for record in second:
        before = known.get(tuple(record[key] for key in keys))
        if before is None or record["status"] != "timed":
            continue
        by = records.common_timing(before, record)
        once, again = (quantile(records.comparable_samples(r, by), 0.5) for r in (before, record))
        times = {"first_ms": once, "second_ms": again, "over": again / once}
        rows.append(_named(record) | times | {"blocks": record["blocks"]})
    return rows
