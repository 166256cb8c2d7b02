"""``headcount audit``: count every formulation on every device with every counter, and explain each difference."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import methodcaller

import torch

from headcount.bench.column import Column, macs_column, plural
from headcount.bench.counters import registry
from headcount.bench.counters.base import Explanation, ToolCount, version_note
from headcount.bench.counters.run_context import one_line, one_thread
from headcount.bench.counting.result import Count, Unknown
from headcount.bench.counting.tools import LONGEST, read
from headcount.bench.formulations import catalog
from headcount.bench.formulations.catalog import FORMULATIONS, Formulation
from headcount.bench.macs.module import CauseRow
from headcount.bench.output.progress import with_progress
from headcount.bench.result import Row, Table, columns_of, shown

ABOUT = (
    "A row is one formulation of a layer on one device. Column headcount: its count minus the closed form. Other "
    "counters: reported MACs minus the closed form."
)
FAILED = "failed"


@dataclass(frozen=True)
class AuditRow(Row):
    """A formulation on a device: headcount's count of it, and every counter's.

    Attributes:
        spelling: name of the formulation.
        written: how it is written.
        device: where it ran.
        exact: its closed form.
        headcount_macs: headcount's count; None where the formulation failed.
        counts: the other counters' counts.
        failed: why the formulation failed, empty where it ran.
        notes, failures: as of all rows.
    """

    spelling: str
    written: str
    device: str
    exact: int
    headcount_macs: int | None = None
    counts: Sequence[ToolCount] = ()
    failed: str = ""
    notes: Sequence[str] = ()
    failures: Sequence[str] = ()

    @property
    def headcount(self) -> int | str:
        """The error of headcount."""
        return FAILED if self.headcount_macs is None else self.headcount_macs - self.exact

    def error_of(self, counter: str) -> int | str:
        """Return the error of a counter."""
        found = next((count for count in self.counts if count.counter == counter), None)
        return FAILED if found is None or found.difference is None else found.difference


@dataclass(frozen=True)
class AuditCauseRow(CauseRow):
    """A cause of an error, and the formulations and devices that have it, in the first row of a count."""

    difference: int | str | None = shown(macs_column, "error\nvs exact", sign=True, words=True)
    cells: str = shown(Column, "formulations and devices", priority=2, wraps=20)


def count_formulations(counters: Sequence[str], device: str | None) -> list[AuditRow]:
    """Return every formulation on every device, by every counter."""
    devices = [device] if device else ["cpu", "meta", *(["cuda"] if torch.cuda.is_available() else [])]
    places = [(formulation, where) for formulation in FORMULATIONS for where in devices]
    rows = (_row(formulation, where, _read(formulation, where, counters)) for formulation, where in places)
    names = [f"{formulation.name} on {where}" for formulation, where in places]
    return list(with_progress(rows, "run", names))


def tables(rows: Sequence[AuditRow], counters: Sequence[str]) -> list[Table]:
    """Return the table of formulations by counter, then the causes of all differences."""
    return [_matrix_table(rows, counters), _causes_table(rows)]


def sentence(rows: Sequence[AuditRow], counters: Sequence[str]) -> str:
    """Return how many runs are exact, explained, failed and unexplained."""
    runs = len(rows) * len(counters)
    read = [count for row in rows for count in row.counts if count.macs is not None]
    exact = sum(count.difference == 0 for count in read)
    wrong = sum(len(row.failures) for row in rows)
    explained, failed = len(read) - exact - wrong, runs - len(read)
    return f"{plural(runs, 'run')}: {exact} exact, {explained} explained, {failed} failed; {wrong} not explained."


def _read(formulation: Formulation, device: str, counters: Sequence[str]) -> Count | Unknown:
    try:
        module, inputs = formulation.build(device)
        options = {"counters": counters, "label": formulation.name, "exact": formulation.exact.macs}
        with one_thread():
            return read(module, tuple(inputs.values()), **options)
    except Exception as error:
        return Unknown(f"failed: {one_line(type(error).__name__, str(error))[:LONGEST]}")


def _runs(formulation: Formulation, device: str) -> bool:
    try:
        module, inputs = formulation.build(device)
        with torch.no_grad():
            module(*inputs.values())
    except Exception:
        return False
    return True


def _matrix_table(rows: Sequence[AuditRow], counters: Sequence[str]) -> Table[AuditRow]:
    sizes = f"B={catalog.B} T={catalog.T} S={catalog.S} d_m={catalog.D_MODEL}, h={catalog.HEADS} g={catalog.KV_HEADS}"
    experts = f"E={catalog.EXPERTS} K={catalog.TOP_K} D={catalog.WIDTH} V={catalog.VOCABULARY}"
    difference = partial(macs_column, sign=True, words=True)
    columns = [
        Column("spelling", "formulation"),
        Column("written", "written with", priority=3, wraps=20),
        Column("device", "device", priority=0),
        macs_column("exact", "MACs\nexact"),
        difference("headcount", "headcount", priority=0),
        *(difference(name, name.replace("-", "\n"), value=methodcaller("error_of", name)) for name in counters),
    ]
    notes = [f"Sizes: {sizes}, {experts}.", ABOUT]
    return Table("audit", "audit: error of each counter", columns, rows, notes, note_column="spelling")


def _row(formulation: Formulation, device: str, found: Count | Unknown) -> AuditRow:
    exact, where = formulation.exact.macs, f"{formulation.name} on {device}"
    row = AuditRow(formulation.name, formulation.written, device, exact)
    if isinstance(found, Unknown):
        # a layer that runs untraced is headcount's failure, not the device's
        failures = [f"{where}: {found.reason}"] if _runs(formulation, device) else []
        return replace(row, failed=found.reason, notes=[found.reason], failures=failures)
    failures, notes = [], []
    if found.macs != exact:
        failures.append(f"{where}: headcount counts {found.macs:,}, exact {exact:,}")
    tools = found.tools or ()
    for count in tools:
        if count.reason:
            notes.append(f"{count.counter} failed: {count.reason[:LONGEST]}")
        if count.disagreement:
            rules = version_note(registry.counter(count.counter).VERIFIED)
            failures.append(f"{where}: {count.counter} {count.disagreement}{rules}")
    return replace(row, headcount_macs=found.macs, counts=tools, notes=notes, failures=failures)


def _causes_table(rows: Sequence[AuditRow]) -> Table[AuditCauseRow]:
    """Return the causes of all differences; formulations with the same causes share their rows."""
    differences: dict[tuple[str, Explanation], int | None] = {}
    places: dict[tuple[str, Explanation], list[str]] = {}
    for row in rows:
        for count in row.counts:
            if count.explanation and count.explanation.causes:
                key = count.counter, count.explanation
                differences[key] = count.difference
                places.setdefault(key, []).append(f"{row.spelling} {row.device}")
    causes = []
    for (counter, explanation), where in places.items():
        difference = differences[counter, explanation]
        first, *others = map(vars, explanation.causes)
        causes.append(AuditCauseRow(counter, **first, difference=difference, cells=", ".join(where)))
        causes += [AuditCauseRow("", **cause, difference="", cells="") for cause in others]
    unverified = dict.fromkeys(text for _, explanation in places for text in explanation.unverified)
    below = ["The causes of a count sum to its error."]
    below += [f"The rules are unverified for {', '.join(unverified)}."] if unverified else []
    first_column, *parts, error, cells = columns_of(AuditCauseRow)
    columns = [first_column, error, *parts, cells]
    return Table("audit-causes", "audit: where each tool's error comes from", columns, causes, below=below, detail=True)
