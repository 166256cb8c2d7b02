"""Triton's kernels as compiled without a GPU: what a stored run says of each, by kernel."""

import csv
from collections.abc import Mapping, Sequence

from headcount.bench import records
from headcount.bench.table import Column
from headcount.reports import markdown
from headcount.reports.facts import Facts

RECORD = "kernels.csv"
COMMAND = "make kernels"


def page(facts: Facts) -> str:
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
        f"configuration: `reports/records/{RECORD}`."
    )
    return f"{about}\n\n{markdown.table(columns, [_row(name, rows) for name, rows in found.items()])}"


def _stored() -> dict[str, list[Mapping[str, str]]]:
    kernels: dict[str, list[Mapping[str, str]]] = {}
    with (records.shipped() / RECORD).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            kernels.setdefault(row["kernel"], []).append(row)
    return kernels


def _values(kernels: Mapping[str, Sequence[Mapping[str, str]]], column: str) -> list[str]:
    return list(dict.fromkeys(row[column] for rows in kernels.values() for row in rows))


def _row(name: str, rows: Sequence[Mapping[str, str]]) -> dict[str, str | int]:
    return {
        "kernel": name,
        "configurations": len(rows),
        "fit": sum(row["verdict"] == "ok" for row in rows),
        **{key: max(int(row[key]) for row in rows) for key in ("registers", "shared_bytes")},
        "spills": sum(int(row["spills"]) for row in rows),
        "tensor": sum(int(row["tensor"]) == 0 for row in rows),
        "blocks": min(int(row["blocks"]) for row in rows),
    }
