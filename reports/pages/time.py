"""Latency: stored measurements of layers and models, estimates compared with them, and Triton's compiled kernels."""

import csv
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from headcount.bench import records
from headcount.bench.latency import estimate, like
from headcount.bench.latency.statistics import quantile
from headcount.bench.table import Column
from headcount.reports import document, latency
from headcount.reports.document import Page, Section
from headcount.reports.facts import Facts
from headcount.reports.plots import clock
from headcount.reports.plots.plot import files

ORDER = 60
KERNELS = "kernels.csv"
COMPILE = f"python -m bench.latency.compile --arch 80 90 100 --format csv --out reports/records/{KERNELS}"


def page(facts: Facts) -> Page:
    """The page."""
    return Page(
        "time",
        "Latency",
        lambda facts: "Stored measurements. A case without one is marked not measured; no estimate replaces it.",
        [
            Section(
                "Time per layer",
                [clock.TAX.shown, latency.about, partial(latency.tables, subject="layer")],
                latency.commands(facts, "layer"),
            ),
            Section("Time per model", [partial(latency.tables, subject="model")], latency.commands(facts, "model")),
            Section("CUDA: measured and estimated", [beside_measured], [latency.ON_CUDA]),
            Section("The authors' wall-clock sentence", [latency.sentence], latency.commands(facts, "layer", "tax")),
            Section(
                "MoH: where skipping heads pays",
                [clock.SKIPPING.shown, latency.break_even],
                latency.commands(facts, "layer", "to_dense"),
            ),
            Section("Triton kernels as compiled", [kernels], [COMPILE]),
            Section("Measurement environments", [latency.environments]),
        ],
        files(clock.TAX, clock.SKIPPING) | {latency.DATA: latency.data},
    )


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
    for device, found in devices.items():
        rows = [row for row in map(_estimated, found) if row]
        parts.append(f"**{device}**")
        parts.append(document.table(list(_ESTIMATE), rows) if rows else "No estimate: no hardware that is named.")
        second = [record for record in repeats if record["environment"]["device"] == device]
        if twice := _twice(found, second):
            parts.append(document.table(list(_AGAIN), twice))
    return "\n\n".join(parts)


def _named(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: record[key] for key in ("seq_len", "batch_size")} | {
        "layer": f"{record['arm']}, {record['pass']}",
        "arm": record["implementation"],
    }


def _estimated(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """A row; None of a record that was not timed, or of a device without figures."""
    least = estimate.of_record(record)
    if least is None or record["status"] != "timed":
        return None
    measured = latency.median_ms(record)
    times = {"estimate_ms": least, "measured_ms": measured, "over": measured / least}
    return _named(record) | times | {"by": like.timed_by(record)}


def _twice(first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of what was timed twice, by what both were timed by."""
    keys = ("name", "arm", "implementation", "seq_len", "batch_size", "dtype", "pass", "routing")
    known = {tuple(r[key] for key in keys): r for r in first if r["status"] == "timed"}
    rows = []
    for record in second:
        before = known.get(tuple(record[key] for key in keys))
        if before is None or record["status"] != "timed":
            continue
        by = like.common(before, record)
        once, again = (quantile(like.samples(r, by), 0.5) for r in (before, record))
        times = {"first_ms": once, "second_ms": again, "over": again / once}
        rows.append(_named(record) | times | {"blocks": record["blocks"]})
    return rows


def kernels(facts: Facts) -> str:
    """A row for each kernel; every configuration stands in the record."""
    found = _stored()
    columns = [
        Column("kernel", "kernel"),
        Column("configurations", "configurations", kind="int"),
        Column("fit", "fit", kind="int"),
        Column("registers", "registers of a thread, most", kind="int"),
        Column("shared_bytes", "shared memory of a block, most", "KiB", kind="fixed", scale=1024, digits=1),
        Column("spills", "spills", kind="int"),
        Column("tensor", "without tensor cores", kind="int"),
        Column("blocks", "blocks on a multiprocessor, least", kind="int"),
    ]
    made_by, made_for = ", ".join(_values(found, "triton")), ", ".join(f"sm_{arch}" for arch in _values(found, "arch"))
    about = (
        f"Every configuration that the layers launch in bfloat16, compiled ahead of time by triton {made_by} for "
        f"{made_for}: nothing ran, and no time is known. Kernels that multiply no matrices need no tensor cores. Each "
        f"configuration: `reports/records/{KERNELS}`."
    )
    return f"{about}\n\n{document.table(columns, [_kernel_row(name, rows) for name, rows in found.items()])}"


def _stored() -> dict[str, list[Mapping[str, str]]]:
    kernels: dict[str, list[Mapping[str, str]]] = {}
    with (records.shipped() / KERNELS).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            kernels.setdefault(row["kernel"], []).append(row)
    return kernels


def _values(kernels: Mapping[str, Sequence[Mapping[str, str]]], column: str) -> list[str]:
    return list(dict.fromkeys(row[column] for rows in kernels.values() for row in rows))


def _kernel_row(name: str, rows: Sequence[Mapping[str, str]]) -> dict[str, str | int]:
    return {
        "kernel": name,
        "configurations": len(rows),
        "fit": sum(row["verdict"] == "ok" for row in rows),
        **{key: max(int(row[key]) for row in rows) for key in ("registers", "shared_bytes")},
        "spills": sum(int(row["spills"]) for row in rows),
        "tensor": sum(int(row["tensor"]) == 0 for row in rows),
        "blocks": min(int(row["blocks"]) for row in rows),
    }
