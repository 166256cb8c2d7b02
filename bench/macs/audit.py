"""``bench.macs --audit``: every spelling on every device under every counter, and the cause of each difference."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import tee
from typing import Any

import torch

from headcount.bench.counters import registry
from headcount.bench.counters.call_counts import known
from headcount.bench.counters.readings import LONGEST, Readings, as_record, read
from headcount.bench.counters.run_context import one_line, one_thread
from headcount.bench.spellings import catalog
from headcount.bench.spellings.catalog import SPELLINGS, Spelling
from headcount.bench.table import Column, Row, Section, Table

ABOUT = (
    "Each line is one way of writing a layer. Right: our count less the closed form. Counters: reading less the closed "
    "form, in multiply-accumulates."
)


@dataclass(frozen=True)
class Cells:
    """A spelling on a device under every counter; where it could not be recorded ``failed`` says why, and ``ours``
    whether the layer runs without us."""

    spelling: Spelling
    device: str
    found: Readings | None = None
    failed: str | None = None
    ours: bool = False


def sections(counters: Sequence[str], device: str | None) -> Iterator[Section]:
    """The matrix of spellings and counters, then the causes of all cells that are not 0."""
    devices = [device] if device else ["cpu", "meta", *(["cuda"] if torch.cuda.is_available() else [])]
    # Either table may be read first: what one has not come to is kept for it.
    for_matrix, for_causes = tee(_cells(spelling, where, counters) for spelling in SPELLINGS for where in devices)
    yield Section(_matrix_table(counters), (_row(cells, counters) for cells in for_matrix))
    yield Section(_causes_table(), _causes(for_causes), detail=True)


def _cells(spelling: Spelling, device: str, counters: Sequence[str]) -> Cells:
    try:
        return Cells(spelling, device, _read(spelling, device, counters))
    except Exception as error:
        reason = f"failed: {one_line(type(error).__name__, str(error))[:LONGEST]}"
        return Cells(spelling, device, failed=reason, ours=_runs(spelling, device))


def _read(spelling: Spelling, device: str, counters: Sequence[str]) -> Readings:
    module, inputs = spelling.build(device)
    with one_thread():
        return read(module, tuple(inputs.values()), counters=counters, label=spelling.name, exact=spelling.exact.macs)


def _runs(spelling: Spelling, device: str) -> bool:
    try:
        module, inputs = spelling.build(device)
        with torch.no_grad():
            module(*inputs.values())
    except Exception:
        return False
    return True


def _matrix_table(counters: Sequence[str]) -> Table:
    sizes = f"B={catalog.B} T={catalog.T} S={catalog.S} d_m={catalog.D_MODEL}, h={catalog.HEADS} g={catalog.KV_HEADS}"
    experts = f"E={catalog.EXPERTS} K={catalog.TOP_K} D={catalog.WIDTH} V={catalog.VOCABULARY}"
    return Table(
        "audit",
        "audit: reading less exact",
        [
            Column("spelling", "spelling", width=24),
            Column("written", "written with", width=max(len(s.written) for s in SPELLINGS), priority=3, wraps=20),
            Column("device", "device", width=6, priority=0),
            Column("exact", "MACs\nexact", kind="int", width=9, of="MACs"),
            Column("right", "right", kind="int", width=6, sign=True, words=True, of="MACs", priority=0),
            *(
                Column(name, name.replace("-", "\n"), kind="int", width=9, sign=True, words=True, of="MACs")
                for name in counters
            ),
        ],
        notes_above=[f"Sizes: {sizes}, {experts}.", ABOUT],
        note_column="spelling",
    )


def _row(cells: Cells, counters: Sequence[str]) -> Row:
    spelling, device, found = cells.spelling, cells.device, cells.found
    exact = spelling.exact.macs
    place = {"spelling": spelling.name, "device": device, "exact": exact}
    values: dict[str, Any] = {**place, "written": spelling.written}
    if found is None:
        values |= dict.fromkeys(("right", *counters), "failed")
        records = [{**place, "failed": cells.failed, "counter": name} for name in ("right", *counters)]
        # A layer that runs without us is our failure, not the device's.
        failures = [f"{spelling.name} on {device}: {cells.failed}"] if cells.ours else []
        return Row(values, notes=[cells.failed], records=records, failures=failures)
    failures, notes = [], []
    if found.right.macs != exact:
        failures.append(f"{spelling.name} on {device}: the right count is {found.right.macs:,}, exact {exact:,}")
    values["right"] = found.right.macs - exact
    records = [{**place, "counter": "right", "macs": found.right.macs}]
    for cell in found.counters:
        records.append({**place, **as_record(cell)})
        if cell.reason:
            values[cell.counter] = "failed"
            notes.append(f"{cell.counter} failed: {cell.reason[:LONGEST]}")
        else:
            values[cell.counter] = cell.difference
        if not cell.agrees:
            rules = known(registry.counter(cell.counter).VERIFIED)
            failures.append(f"{spelling.name} on {device}: {cell.counter} {cell.disagreement}{rules}")
    return Row(values, notes=notes, records=records, failures=failures)


def _causes_table() -> Table:
    return Table(
        "audit-causes",
        "audit: the calls that make each difference",
        [
            Column("counter", "counter", width=15),
            Column("difference", "reading\nless exact", kind="int", sign=True, width=10, of="MACs"),
            Column("amount", "of which", kind="int", sign=True, width=10, of="MACs", priority=0),
            Column("what", "what", width=12, priority=3),
            Column("name", "call", width=70, priority=0, wraps=20),
            Column("calls", "calls", kind="int", priority=4),
            Column("place", "place in the tool's source", width=40, priority=2, wraps=20),
            Column("cells", "spellings and devices", width=30, priority=2, wraps=20),
        ],
        notes_above=["Cells with the same causes stand together; their parts sum to their difference."],
    )


def _causes(cells: Iterable[Cells]) -> Iterator[Row]:
    groups: dict[tuple, list[str]] = {}
    for one in cells:
        for cell in one.found.counters if one.found else ():
            if cell.explanation and cell.explanation.causes:
                key = (cell.counter, cell.difference, cell.explanation)
                groups.setdefault(key, []).append(f"{one.spelling.name} {one.device}")
    for (counter, difference, explanation), names in groups.items():
        first = True
        for cause in explanation.causes:
            yield Row(
                {
                    "counter": counter if first else "",
                    "difference": difference if first else None,
                    "amount": cause.amount,
                    "what": cause.what,
                    "name": cause.name,
                    "calls": cause.calls,
                    "place": cause.place,
                    "cells": ", ".join(names) if first else "",
                },
            )
            first = False
        if explanation.unverified:
            unverified = f"unverified for {', '.join(explanation.unverified)}"
            yield Row({**dict.fromkeys(("counter", "place", "cells", "what"), ""), "name": unverified,
                       "difference": None, "amount": None, "calls": None})  # fmt: skip
