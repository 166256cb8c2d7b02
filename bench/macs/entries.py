"""Tables of one model: its ledger by module and by kind, and the parts of each reported count."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from headcount.bench.case import describe_input
from headcount.bench.contractions.summary import sizes
from headcount.bench.counters.base import Count
from headcount.bench.measure import Measurement, as_records
from headcount.bench.table import TONES, Column, Row, Section, Table, macs_column, params_column
from headcount.formulas.ledger import MAC_KINDS, Ledger

SHARE = Column("share", "share", unit="%", kind="fixed", digits=2)
COSTS = (
    macs_column("macs", "MACs", priority=0),
    SHARE,
    Column("elements", "elements", kind="int", of="elements", priority=4),
    params_column("params", "params"),
    params_column("active_params", "params\nactive", priority=3),
)
ABOUT = (
    "MACs: multiply-accumulates of one forward pass. Elements: outputs of an operation without any. A * stands for "
    "the index of a repeated layer, all repetitions together."
)
CAUSES = "where each tool's error comes from"
COUNTER_COLUMNS = [
    Column("counter", "counter"),
    Column("device", "device"),
    macs_column("reading", "reported\nMACs", priority=0),
    macs_column("difference", "error\nvs exact", sign=True, priority=0),
    Column("because", "what it adds, by name", priority=0, wraps=16),
    Column("agrees", "explained\nby its rules", priority=0, tones=TONES),
]
"""Columns of a counter: its reported count, its error and the additions that explain it."""
CAUSE_COLUMNS = [
    Column("counter", "counter"),
    macs_column("macs", "MACs", sign=True, priority=0),
    Column("what", "what", priority=2),
    Column("name", "call", priority=0, wraps=20),
    Column("calls", "calls", kind="int", priority=3),
    Column("place", "place in the tool's source", wraps=20),
]
"""Columns of the calls that cause an error, with their places in the tool's source."""


def sections(name: str, measured: Measurement, heading: str) -> Iterator[Section]:
    """Yield the ledger of ``measured`` entry by entry, its sums by kind, and its counters."""
    columns = [Column("path", "module"), Column("kind", "kind"), Column("sizes", "sizes", priority=2), *COSTS]
    notes = [f"Input: {describe_input(measured.case.lengths)}.", ABOUT]
    failures = measured.disagreements(name)
    ledger, total = measured.ledger, measured.ledger.macs
    rows = [
        _row(entry.path or "(model)", Ledger((entry,)), total, kind=entry.kind, sizes=sizes(entry)) for entry in ledger
    ]
    rows.append(_row("total", ledger, total, kind="", sizes=""))
    records = as_records(name, measured)
    rows[0] = replace(rows[0], records=records, failures=failures)
    yield Section(Table(name, heading, columns, notes), rows, below=list(failures), detail=True)

    kinds = dict.fromkeys(entry.kind for entry in ledger)
    by_kind = [_row(kind, ledger.select(lambda entry, kind=kind: entry.kind == kind), total) for kind in kinds]
    by_kind.append(_row("total", ledger, total))
    yield Section(Table(f"{name}-kinds", f"{name}: by kind", [Column("path", "kind"), *COSTS]), by_kind)
    if measured.counts:
        table = Table(f"{name}-counters", f"{name}: counters", COUNTER_COLUMNS, note_column="agrees")
        yield Section(table, [_count_row(count, total) for count in measured.counts])
    causes = [record for record in records if record.get("causes")]
    if causes:
        yield causes_section(f"{name}-causes", f"{name}: {CAUSES}", causes)


def share(macs: int, total: int) -> Fraction | None:
    """Return a part of all MACs in percent; None where there are none."""
    return Fraction(100 * macs, total) if total else None


def _row(path: str, ledger: Ledger, total: int, **more: Any) -> Row:
    """Return the sums of a part of the ledger: its share of the ``total`` MACs, elements of operations without MACs."""
    elements = [entry.size for entry in ledger if entry.kind not in MAC_KINDS]
    values = {
        "path": path,
        "macs": ledger.macs,
        "share": share(ledger.macs, total) if len(elements) < len(ledger) else None,
        "elements": sum(elements) if elements else None,
        "params": ledger.params,
        "active_params": ledger.active_params,
        **more,
    }
    return Row(values, total=path == "total")


def _count_row(count: Count, exact: int) -> Row:
    added = ", ".join(f"{name} {amount:+,}" for name, amount in count.additions.items())
    values = {"counter": count.counter, "device": count.device, "reading": count.macs}
    if count.macs is None:
        values |= dict.fromkeys(("difference", "because", "agrees"))
    else:
        agrees = "yes" if count.agrees else f"no: {count.predicted_macs:,}"
        values |= {"difference": count.macs - exact, "because": added or "nothing", "agrees": agrees}
    return Row(values, notes=[text for text in (count.reason, count.why_there) if text])


def causes_section(name: str, heading: str, counts: Iterable[Mapping[str, Any]]) -> Section:
    """Return the causes of each counter's difference, from the records of its counts."""
    rows = []
    for count in counts:
        for position, cause in enumerate(count["causes"]):
            rows.append(Row({**cause, "counter": "" if position else count["counter"]}))
    return Section(Table(name, heading, CAUSE_COLUMNS), rows, detail=True)
