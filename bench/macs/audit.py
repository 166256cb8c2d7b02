"""``bench.macs --audit``: count every formulation on every device with every counter, and explain each difference."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from headcount.bench.counters import registry
from headcount.bench.counters.base import as_record, version_note
from headcount.bench.counters.run_context import one_line, one_thread
from headcount.bench.counting.result import Count
from headcount.bench.counting.tools import LONGEST, read
from headcount.bench.formulations import catalog
from headcount.bench.formulations.catalog import FORMULATIONS, Formulation
from headcount.bench.macs.entries import CAUSE_COLUMNS, causes_section
from headcount.bench.output.progress import with_progress
from headcount.bench.table import Column, Row, Section, Table, macs_column

ABOUT = (
    "A row is one formulation of a layer on one device. Column headcount: its count minus the closed form. Other "
    "counters: reported MACs minus the closed form."
)


def sections(counters: Sequence[str], device: str | None) -> Iterator[Section]:
    """Yield the table of formulations by counter, then the causes of all differences."""
    devices = [device] if device else ["cpu", "meta", *(["cuda"] if torch.cuda.is_available() else [])]
    places = [(formulation, where) for formulation in FORMULATIONS for where in devices]
    rows = [_row(*place, _read(*place, counters), counters) for place in with_progress(places, "audit", "run")]
    yield Section(_matrix_table(counters), rows)
    yield _causes([record for row in rows for record in row.records])


def _read(formulation: Formulation, device: str, counters: Sequence[str]) -> Count | str:
    try:
        module, inputs = formulation.build(device)
        options = {"counters": counters, "label": formulation.name, "exact": formulation.exact.macs}
        with one_thread():
            return read(module, tuple(inputs.values()), **options)
    except Exception as error:
        return f"failed: {one_line(type(error).__name__, str(error))[:LONGEST]}"


def _runs(formulation: Formulation, device: str) -> bool:
    try:
        module, inputs = formulation.build(device)
        with torch.no_grad():
            module(*inputs.values())
    except Exception:
        return False
    return True


def _matrix_table(counters: Sequence[str]) -> Table:
    sizes = f"B={catalog.B} T={catalog.T} S={catalog.S} d_m={catalog.D_MODEL}, h={catalog.HEADS} g={catalog.KV_HEADS}"
    experts = f"E={catalog.EXPERTS} K={catalog.TOP_K} D={catalog.WIDTH} V={catalog.VOCABULARY}"
    difference = partial(macs_column, sign=True, words=True)
    columns = [
        Column("spelling", "formulation"),
        Column("written", "written with", priority=3, wraps=20),
        Column("device", "device", priority=0),
        macs_column("exact", "MACs\nexact"),
        difference("headcount", "headcount", priority=0),
        *(difference(name, name.replace("-", "\n")) for name in counters),
    ]
    notes = [f"Sizes: {sizes}, {experts}.", ABOUT]
    return Table("audit", "audit: error of each counter", columns, notes, note_column="spelling")


def _row(formulation: Formulation, device: str, found: Count | str, counters: Sequence[str]) -> Row:
    exact, where = formulation.exact.macs, f"{formulation.name} on {device}"
    place = {"spelling": formulation.name, "device": device, "exact": exact}
    values: dict[str, Any] = {**place, "written": formulation.written}
    if isinstance(found, str):
        names = ("headcount", *counters)
        records = [{**place, "failed": found, "counter": name} for name in names]
        # a layer that runs untraced is headcount's failure, not the device's
        failures = [f"{where}: {found}"] if _runs(formulation, device) else []
        return Row(values | dict.fromkeys(names, "failed"), [found], records, failures)
    failures, notes = [], []
    values["headcount"] = found.macs - exact
    records = [{**place, "counter": "headcount", "macs": found.macs}]
    if values["headcount"]:
        failures.append(f"{where}: headcount counts {found.macs:,}, exact {exact:,}")
    for cell in found.tools:
        records.append({**as_record(cell), **place})
        values[cell.counter] = "failed" if cell.reason else cell.difference
        if cell.reason:
            notes.append(f"{cell.counter} failed: {cell.reason[:LONGEST]}")
        if cell.disagreement:
            rules = version_note(registry.counter(cell.counter).VERIFIED)
            failures.append(f"{where}: {cell.counter} {cell.disagreement}{rules}")
    return Row(values, notes, records, failures)


def _causes(records: Sequence[dict[str, Any]]) -> Section:
    """Return the causes of all differences; formulations with the same causes share their rows."""
    counts: dict[tuple, dict[str, Any]] = {}
    for record in records:
        if record.get("causes"):
            key = (record["counter"], record["predicted_macs"], str(record["causes"]))
            counts.setdefault(key, {**record, "places": []})["places"].append(
                f"{record['spelling']} {record['device']}"
            )
    counter, *parts = CAUSE_COLUMNS
    error = macs_column("difference", "error\nvs exact", sign=True, words=True)
    columns = [counter, error, *parts, Column("cells", "formulations and devices", priority=2, wraps=20)]
    found = [{**count, "cells": ", ".join(count["places"])} for count in counts.values()]
    unverified = dict.fromkeys(text for count in found for text in count["unverified"])
    below = ["The causes of a count sum to its error."]
    below += [f"The rules are unverified for {', '.join(unverified)}."] if unverified else []
    section = causes_section("audit-causes", "audit: where each tool's error comes from", found, columns)
    return replace(section, below=below)
