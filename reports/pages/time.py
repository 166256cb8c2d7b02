"""Latency: stored measurements of layers and models, estimates compared with them, and Triton's compiled kernels."""

import csv
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from headcount.bench import records
from headcount.bench.latency import estimate
from headcount.bench.latency.statistics import quantile
from headcount.reports import document, latency
from headcount.reports.document import Page, Section, text
from headcount.reports.facts import Facts
from headcount.reports.plots import timing
from headcount.reports.plots.plot import files

ORDER = 60
KERNELS = "kernels.csv"
COMPILE = "make kernels"


def page(facts: Facts) -> Page:
    """Return the page."""
    return Page(
        "time",
        "Latency",
        lambda facts: "Stored measurements. A case without one is marked not measured; no estimate replaces it.",
        [
            Section(
                "Time per layer",
                [timing.OVERHEAD.shown, latency.about, partial(latency.tables, subject="layer")],
                latency.commands(facts, "layer"),
            ),
            Section("Time per model", [partial(latency.tables, subject="model")], latency.commands(facts, "model")),
            Section("CUDA: measured and estimated", [beside_measured], [latency.ON_CUDA]),
            Section(
                "The authors' wall-clock sentence", [latency.sentence], latency.commands(facts, "layer", "overhead")
            ),
            Section(
                "MoH: where skipping heads pays",
                [timing.BREAK_EVEN.shown, latency.break_even],
                latency.commands(facts, "layer", "to_dense"),
            ),
            Section("Triton kernels as compiled", [kernels], [COMPILE]),
            Section("Measurement environments", [latency.environments]),
        ],
        files(timing.OVERHEAD, timing.BREAK_EVEN) | {latency.DATA: latency.data},
    )


MS = {"kind": "fixed", "digits": 4}
ESTIMATE = {
    "estimate, no measure: at least ms": MS,
    "measured ms": MS,
    "measured over estimate": {"kind": "fixed", "digits": 2},
}
AGAIN = {"ms": MS, "ms again": MS, "second over first": {"kind": "fixed", "digits": 3}}


def beside_measured(facts: Facts) -> str:
    """Return tables for each CUDA device: estimate and measurement, and first and second measurement."""
    devices = latency.of_type(facts, "cuda")
    if not devices:
        return latency.NOT_MEASURED["cuda"]
    repeats = [record for record in facts.stored("latency") if record.get("again") and not record["smoke"]]
    parts = []
    for device, found in devices.items():
        rows = [row for row in map(_estimated, found) if row]
        parts.append(f"**{device}**")
        parts.append(document.records(rows, ESTIMATE) if rows else "No estimate: no hardware that is named.")
        second = [record for record in repeats if record["environment"]["device"] == device]
        if twice := _twice(found, second):
            parts.append(document.records(twice, AGAIN))
    return "\n\n".join(parts)


def _named(record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "layer or model": f"{record['layer']}, {record['pass']}",
        "implementation": record["implementation"],
        "T": record["seq_len"],
        "B": record["batch_size"],
    }


def _estimated(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a row; None for a record that was not timed, or for a device without a data sheet."""
    least = estimate.of_record(record)
    if least is None or record["status"] != "timed":
        return None
    measured = latency.median_ms(record)
    return _named(record) | {
        "estimate, no measure: at least ms": least,
        "measured ms": measured,
        "timed by": records.timed_by(record),
        "measured over estimate": measured / least,
    }


def _twice(first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of the cases that were timed twice, by the timing that both have."""
    keys = ("name", "layer", "implementation", "seq_len", "batch_size", "dtype", "pass", "routing")
    known = {tuple(r[key] for key in keys): r for r in first if r["status"] == "timed"}
    rows = []
    for record in second:
        before = known.get(tuple(record[key] for key in keys))
        if before is None or record["status"] != "timed":
            continue
        by = records.common_timing(before, record)
        once, again = (quantile(records.comparable_samples(r, by), 0.5) for r in (before, record))
        times = {"ms": once, "ms again": again, "blocks": record["blocks"], "second over first": again / once}
        rows.append(_named(record) | times)
    return rows


def kernels(facts: Facts) -> str:
    """Return a row for each of Triton's kernels as compiled without a GPU; the record has every configuration."""
    found: dict[str, list[Mapping[str, str]]] = {}
    with (records.shipped() / KERNELS).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["kernel"], []).append(row)
    every = [row for rows in found.values() for row in rows]
    triton, archs = (list(dict.fromkeys(row[column] for row in every)) for column in ("triton", "arch"))
    about = text(
        "time.kernels", triton=", ".join(triton), archs=", ".join(f"sm_{arch}" for arch in archs), record=KERNELS
    )
    memory = {"unit": "KiB", "kind": "fixed", "scale": 1024, "digits": 1}
    rows = [_kernel(name, rows) for name, rows in found.items()]
    return f"{about}\n\n{document.records(rows, {'shared memory of a block, most': memory})}"


def _kernel(name: str, rows: Sequence[Mapping[str, str]]) -> dict[str, str | int]:
    return {
        "kernel": name,
        "configurations": len(rows),
        "fit": sum(row["verdict"] == "ok" for row in rows),
        "registers of a thread, most": max(int(row["registers"]) for row in rows),
        "shared memory of a block, most": max(int(row["shared_bytes"]) for row in rows),
        "spills": sum(int(row["spills"]) for row in rows),
        "without tensor cores": sum(int(row["tensor"]) == 0 for row in rows),
        "blocks on a multiprocessor, least": min(int(row["blocks"]) for row in rows),
    }
