"""Latency: stored measurements of layers and models, comparisons with estimates, and Triton's compiled kernels."""

import csv
import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import headcount
from headcount.bench import records
from headcount.bench.latency import estimate
from headcount.bench.latency.statistics import quantile
from headcount.reports import document, latency
from headcount.reports.document import Page, Section, text
from headcount.reports.facts import Facts
from headcount.reports.plots import timing

KERNELS = "kernels.csv"


def page(facts: Facts) -> Page:
    """Return the page."""
    return Page(
        "time",
        "Latency",
        "Stored measurements. A case without one is marked not measured; no estimate replaces it.",
        [
            Section(
                "Times beside dense models and layers", [latency.overview, text("time.overview", data=latency.DATA)]
            ),
            Section(
                "Time per layer",
                [text("time.about", data=latency.DATA), partial(latency.tables, subject="layer"), timing.OVERHEAD],
            ),
            Section("Time per model", [partial(latency.tables, subject="model")]),
            Section(
                "CUDA: measured and estimated",
                [estimates, text("time.all_rows", data=latency.DATA)],
                [latency.ON_CUDA],
            ),
            Section("The authors' wall-clock sentence", [latency.sentence]),
            Section("MoH: where skipping heads pays", [timing.BREAK_EVEN, latency.break_even]),
            Section("Triton kernels as compiled", [kernels], ["make kernels"]),
            Section("Measurement environments", [latency.environments], latency.commands(facts)),
        ],
        {latency.DATA: latency.data},
    )


ESTIMATES = ("layer", "implementation", "seq_len", "batch_size", "gpu_ms", "timed_by", "estimate_ms", "over_estimate")
AGAIN = dict.fromkeys(("least", "median", "most"), {"kind": "fixed", "digits": 3})


def estimates(facts: Facts) -> str:
    """Return tables for each CUDA device: estimates of the headline rows, and how repeated measurements agree."""

    def show(kind: str, found: Sequence[Mapping[str, Any]]) -> list[str]:
        rows = [row for row in latency.headline_rows(found) if row["pass"] == "forward" and row["wall_ms"]]
        rows = [row for row in rows if estimate.of_record(row) is not None]
        device = found[0]["environment"]["device"]
        repeated = _repeats([r for r in facts.stored("latency") if r["environment"]["device"] == device])
        again = [text("time.again"), document.records(repeated, AGAIN)] if repeated else []
        return [latency.format_rows(rows, ESTIMATES) if rows else "No estimate: no data sheet of this device.", *again]

    return latency.per_device(facts, list, show, ["cuda"])


def _repeats(measured: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return for each kind of timing the ratio of the second to the first median of what one commit timed twice."""
    keys = ("name", "layer", "implementation", "seq_len", "batch_size", "dtype", "pass", "routing")
    pairs: dict[tuple, dict[bool, Mapping[str, Any]]] = {}
    for record in measured:
        if not record["smoke"] and record["status"] == "timed":
            key = (record["environment"]["commit"], *(record[key] for key in keys))
            pairs.setdefault(key, {})[bool(record.get("again"))] = record
    ratios: dict[str, list[float]] = {}
    for pair in pairs.values():
        if len(pair) == 2:
            by = records.common_timing(*pair.values())
            once, again = (quantile(records.comparable_samples(pair[second], by), 0.5) for second in (False, True))
            ratios.setdefault(by, []).append(again / once)
    return [
        {"timed by": by, "rows": len(own), "least": min(own), "median": median(own), "most": max(own)}
        for by, own in sorted(ratios.items())
    ]


def kernels(facts: Facts) -> str:
    """Return a row for each Triton kernel as compiled without a GPU."""
    every = list(csv.DictReader((records.shipped() / KERNELS).read_text("utf-8").splitlines()))
    names, triton, archs = (dict.fromkeys(row[column] for row in every) for column in ("kernel", "triton", "arch"))
    devices = ", ".join(f"sm_{arch}" for arch in archs)
    about = text("time.kernels", triton=", ".join(triton), archs=devices, record=KERNELS)
    memory = {"unit": "KiB", "kind": "fixed", "scale": 1024, "digits": 1}
    rows = [_kernel(name, [row for row in every if row["kernel"] == name]) for name in names]
    if {row["source"] for row in every} != {_source_digest()}:
        about = f"{about}\n\n{text('time.kernels_changed')}"
    return f"{about}\n\n{document.records(rows, {'shared memory of a block, most': memory})}"


def _source_digest() -> str:
    """Return the hash of the kernels' sources that the table has for those it was compiled from."""
    folder = Path(headcount.__file__).parent / "models" / "kernels"
    sources = [(folder / f"{name}.py").read_bytes() for name in ("triton_attention", "triton_configs", "triton_rows")]
    return hashlib.sha256(b"".join(sources)).hexdigest()[:12]


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
