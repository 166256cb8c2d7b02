"""``bench.macs --audit``: count every formulation on every device with every counter, and explain each difference."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import tee
from typing import Any

import torch

from headcount.bench.counters import registry
from headcount.bench.counters.base import as_record
from headcount.bench.counters.call_counts import version_note
from headcount.bench.counters.results import LONGEST, ReportedCounts, read
from headcount.bench.counters.run_context import one_line, one_thread
from headcount.bench.formulations import catalog
from headcount.bench.formulations.catalog import FORMULATIONS, Formulation
from headcount.bench.table import Column, Row, Section, Table, macs_column

ABOUT = (
    "A row is one formulation of a layer on one device. Column headcount: its count minus the closed form. Other "
    "counters: reported MACs minus the closed form."
)


@dataclass(frozen=True)
class Cells:
    """The counts of one formulation on one device.

    ``failed``: why it could not be traced. ``is_own_failure``: the layer runs untraced, so headcount failed.
    """

    formulation: Formulation
    device: str
    found: ReportedCounts | None = None
    failed: str | None = None
    is_own_failure: bool = False


def sections(counters: Sequence[str], device: str | None) -> Iterator[Section]:
    """Yield the table of formulations by counter, then the causes of all differences."""
    devices = [device] if device else ["cpu", "meta", *(["cuda"] if torch.cuda.is_available() else [])]
    # the two tables consume the cells independently
    for_matrix, for_causes = tee(
        _cells(formulation, where, counters) for formulation in FORMULATIONS for where in devices
    )
    yield Section(_matrix_table(counters), (_row(cells, counters) for cells in for_matrix))
    yield Section(_causes_table(), _causes(for_causes), detail=True)


def _cells(formulation: Formulation, device: str, counters: Sequence[str]) -> Cells:
    try:
        return Cells(formulation, device, _read(formulation, device, counters))
    except Exception as error:
        reason = f"failed: {one_line(type(error).__name__, str(error))[:LONGEST]}"
        return Cells(formulation, device, failed=reason, is_own_failure=_runs(formulation, device))


def _read(formulation: Formulation, device: str, counters: Sequence[str]) -> ReportedCounts:
    module, inputs = formulation.build(device)
    with one_thread():
        return read(
            module, tuple(inputs.values()), counters=counters, label=formulation.name, exact=formulation.exact.macs
        )


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
        Column("spelling", "formulation", width=24),
        Column("written", "written with", width=max(len(s.written) for s in FORMULATIONS), priority=3, wraps=20),
        Column("device", "device", width=6, priority=0),
        macs_column("exact", "MACs\nexact", width=9),
        difference("headcount", "headcount", width=9, priority=0),
        *(difference(name, name.replace("-", "\n"), width=9) for name in counters),
    ]
    notes = [f"Sizes: {sizes}, {experts}.", ABOUT]
    return Table("audit", "audit: error of each counter", columns, notes, note_column="spelling")


def _row(cells: Cells, counters: Sequence[str]) -> Row:
    formulation, found = cells.formulation, cells.found
    exact, where = formulation.exact.macs, f"{formulation.name} on {cells.device}"
    place = {"spelling": formulation.name, "device": cells.device, "exact": exact}
    values: dict[str, Any] = {**place, "written": formulation.written}
    if found is None:
        names = ("headcount", *counters)
        records = [{**place, "failed": cells.failed, "counter": name} for name in names]
        # a layer that runs untraced is headcount's failure, not the device's
        failures = [f"{where}: {cells.failed}"] if cells.is_own_failure else []
        return Row(values | dict.fromkeys(names, "failed"), [cells.failed], records, failures)
    failures, notes = [], []
    values["headcount"] = found.headcount.macs - exact
    records = [{**place, "counter": "headcount", "macs": found.headcount.macs}]
    if values["headcount"]:
        failures.append(f"{where}: headcount counts {found.headcount.macs:,}, exact {exact:,}")
    for cell in found.counters:
        records.append({**as_record(cell), **place})
        values[cell.counter] = "failed" if cell.reason else cell.difference
        if cell.reason:
            notes.append(f"{cell.counter} failed: {cell.reason[:LONGEST]}")
        if not cell.agrees:
            rules = version_note(registry.counter(cell.counter).VERIFIED)
            failures.append(f"{where}: {cell.counter} {cell.disagreement}{rules}")
    return Row(values, notes, records, failures)


def _causes_table() -> Table:
    columns = [
        Column("counter", "counter", width=15),
        macs_column("difference", "error\nvs exact", sign=True, width=10),
        macs_column("amount", "of which", sign=True, width=10, priority=0),
        Column("what", "what", width=13, priority=3),
        Column("name", "call", width=70, priority=0, wraps=20),
        Column("calls", "calls", kind="int", priority=4),
        Column("place", "place in the tool's source", width=40, priority=2, wraps=20),
        Column("cells", "formulations and devices", width=30, priority=2, wraps=20),
    ]
    notes = ["Formulations with the same causes share their rows; the parts sum to the error."]
    return Table("audit-causes", "audit: where each tool's error comes from", columns, notes)


def _causes(cells: Iterable[Cells]) -> Iterator[Row]:
    groups: dict[tuple, list[str]] = {}
    for one in cells:
        for cell in one.found.counters if one.found else ():
            if cell.explanation and cell.explanation.causes:
                key = (cell.counter, cell.difference, cell.explanation)
                groups.setdefault(key, []).append(f"{one.formulation.name} {one.device}")
    blank = {"counter": "", "difference": None, "cells": ""}
    for (counter, difference, explanation), names in groups.items():
        first = {"counter": counter, "difference": difference, "cells": ", ".join(names)}
        for number, cause in enumerate(explanation.causes):
            yield Row({**(blank if number else first), **vars(cause)})
        if explanation.unverified:
            unverified = f"unverified for {', '.join(explanation.unverified)}"
            yield Row({**blank, "amount": None, "what": "", "name": unverified, "calls": None, "place": ""})
