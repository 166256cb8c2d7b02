"""``bench.macs --audit``: every spelling on every device under every counter, and the cause of each difference."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from headcount.bench.counters.undisturbed import one_line, one_thread
from headcount.bench.readings import LONGEST, Explained, Readings, as_record, read
from headcount.bench.render import Row, Section
from headcount.bench.spellings import catalog
from headcount.bench.spellings.catalog import SPELLINGS, Spelling
from headcount.bench.table import Column, Table

ABOUT = (
    "Each line is one way of writing a layer. Right: our count less the closed form. Counters: reading less the closed "
    "form, in multiply-accumulates."
)


def sections(counters: Sequence[str], device: str | None) -> Iterator[Section]:
    """The matrix of spellings and counters, then the causes of all cells that are not 0."""
    cells: list[tuple[Spelling, str, Explained]] = []
    devices = [device] if device else ["cpu", "meta", *(["cuda"] if torch.cuda.is_available() else [])]
    sizes = f"B={catalog.B} T={catalog.T} S={catalog.S} d_m={catalog.D_MODEL}, h={catalog.HEADS} g={catalog.KV_HEADS}"
    experts = f"E={catalog.EXPERTS} K={catalog.TOP_K} D={catalog.WIDTH} V={catalog.VOCABULARY}"
    matrix = Table(
        "audit",
        "audit: reading less exact",
        [
            Column("spelling", "spelling", width=24),
            Column("written", "written with", width=44),
            Column("device", "device", width=6),
            Column("exact", "MACs\nexact", kind="int", width=9),
            Column("right", "right", width=6, align="right"),
            *(Column(name, name.replace("-", "\n"), width=9, align="right") for name in counters),
        ],
        notes_above=[f"Sizes: {sizes}, {experts}.", ABOUT],
        note_column="spelling",
    )
    yield Section(matrix, _matrix(counters, devices, cells))
    yield Section(_causes_table(), _causes(cells))


def _matrix(counters, devices, cells) -> Iterator[Row]:
    for spelling in SPELLINGS:
        for device in devices:
            yield _row(spelling, device, counters, cells)


def _row(spelling: Spelling, device: str, counters: Sequence[str], cells: list) -> Row:
    exact = spelling.exact.macs
    values: dict[str, Any] = {"spelling": spelling.name, "written": spelling.written, "device": device, "exact": exact}
    try:
        found = _read(spelling, device, counters)
    except Exception as error:
        reason = f"failed: {one_line(type(error).__name__, str(error))[:LONGEST]}"
        record = {"spelling": spelling.name, "device": device, "exact": exact, "failed": reason}
        columns = dict.fromkeys(("right", *counters), "failed")
        records = [{**record, "counter": name} for name in ("right", *counters)]
        # A layer that runs without us is our failure, not the device's.
        failures = [f"{spelling.name} on {device}: {reason}"] if _runs(spelling, device) else []
        return Row({**values, **columns}, notes=[reason], records=records, failures=failures)
    failures, notes, records = [], [], []
    if found.right.macs != exact:
        failures.append(f"{spelling.name} on {device}: the right count is {found.right.macs:,}, exact {exact:,}")
    values["right"] = f"{found.right.macs - exact:+,}" if found.right.macs != exact else "0"
    records.append(
        {"spelling": spelling.name, "device": device, "exact": exact, "counter": "right", "macs": found.right.macs}
    )
    for cell in found.counters:
        cells.append((spelling, device, cell))
        records.append(
            {"spelling": spelling.name, "device": device, "exact": exact, **as_record(cell)},
        )
        if cell.failed:
            values[cell.counter] = "failed"
            notes.append(f"{cell.counter} failed: {cell.failed[:LONGEST]}")
        else:
            values[cell.counter] = f"{cell.difference:+,}" if cell.difference else "0"
        if not cell.explained:
            failures.append(
                f"{spelling.name} on {device}: {cell.counter} reads {cell.macs:,}, its rules predict "
                f"{cell.explanation.predicted_macs:,}"
            )
    return Row(values, notes=notes, records=records, failures=failures)


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


def _causes_table() -> Table:
    return Table(
        "audit-causes",
        "audit: the calls that make each difference",
        [
            Column("counter", "counter", width=15),
            Column("difference", "reading\nless exact", kind="int", sign=True, width=10),
            Column("amount", "of which", kind="int", sign=True, width=10),
            Column("what", "what", width=12),
            Column("name", "call", width=60),
            Column("calls", "calls", kind="int"),
            Column("place", "place in the tool's source", width=40),
            Column("cells", "spellings and devices", width=30),
        ],
        notes_above=["Cells with the same causes stand together; their parts sum to their difference."],
    )


def _causes(cells: list[tuple[Spelling, str, Explained]]) -> Iterator[Row]:
    """Read after the matrix, whose rows fill ``cells``."""
    groups: dict[tuple, list[str]] = {}
    for spelling, device, cell in cells:
        if cell.explanation and cell.explanation.causes:
            key = (cell.counter, cell.difference, cell.explanation)
            groups.setdefault(key, []).append(f"{spelling.name} {device}")
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
                records=[],
            )
            first = False
        if explanation.unverified:
            unverified = f"unverified for {', '.join(explanation.unverified)}"
            yield Row({**dict.fromkeys(("counter", "place", "cells", "what"), ""), "name": unverified,
                       "difference": None, "amount": None, "calls": None})  # fmt: skip
