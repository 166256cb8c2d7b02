"""One model in detail: its ledger per module and kind, and how each counter's reading comes about."""

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from headcount.bench.case import describe_input
from headcount.bench.contractions.summary import sizes
from headcount.bench.measure import Measurement, as_records
from headcount.bench.table import TONES, Column, Row, Section, Table
from headcount.formulas.ledger import MAC_KINDS, Entry, Ledger

SHARE = Column("share", "share", unit="%", kind="fixed", digits=2)
COSTS = (
    Column("macs", "MACs", kind="int", of="MACs", priority=0),
    SHARE,
    Column("elements", "elements", kind="int", of="elements", priority=4),
    Column("params", "params", kind="int", of="params"),
    Column("active_params", "params\nactive", kind="int", of="params", priority=3),
)
ABOUT = (
    "MACs: multiply-accumulates of one forward pass. Elements: outputs of an operation without any. A * stands for "
    "the index of a repeated layer, all repetitions together."
)


CAUSES = "the calls that make each difference"


COUNTED = [
    Column("counter", "counter"),
    Column("device", "device"),
    Column("reading", "reading", kind="int", of="MACs", priority=0),
    Column("difference", "reading\nless exact", kind="int", sign=True, of="MACs", priority=0),
    Column("because", "what it adds, by name", priority=0, wraps=16),
    Column("agrees", "as its rules\npredict", priority=0, tones=TONES),
]
"""What a counter reads, and what makes it differ."""


CALLED = [
    Column("counter", "counter"),
    Column("macs", "MACs", kind="int", sign=True, of="MACs", priority=0),
    Column("what", "what", priority=2),
    Column("name", "call", priority=0, wraps=20),
    Column("calls", "calls", kind="int", priority=3),
    Column("place", "place in the tool's source", wraps=20),
]
"""The calls that make a difference, and where a tool has them."""


def sections(name: str, measured: Measurement, heading: str) -> Iterator[Section]:
    """The ledger of ``measured`` entry by entry, its sums by kind, and its counters."""
    about = f"Input: {describe_input(measured.lengths)}."
    entries = Table(
        name,
        heading,
        [
            Column("path", "module"),
            Column("kind", "kind"),
            Column("sizes", "sizes", priority=2),
            *COSTS,
        ],
        notes_above=[about, ABOUT],
    )
    failures = measured.disagreements(name)
    total = measured.ledger.macs
    rows = [_entry_row(entry, total) for entry in measured.ledger] + [_total_row(measured.ledger, total, sizes="")]
    records = as_records(name, measured)
    rows[0] = Row(rows[0].values, records=records, failures=failures)
    yield Section(entries, rows, below=list(failures), detail=True)

    kinds = dict.fromkeys(entry.kind for entry in measured.ledger)
    by_kind = [_kind_row(kind, measured.ledger, total) for kind in kinds] + [_total_row(measured.ledger, total)]
    yield Section(Table(f"{name}-kinds", f"{name}: by kind", [Column("path", "kind"), *COSTS]), by_kind)
    if measured.counts:
        yield _counter_section(name, measured)
    causes = [record for record in records if record.get("causes")]
    if causes:
        yield causes_section(f"{name}-causes", f"{name}: {CAUSES}", causes)


def share(macs: int, total: int) -> Fraction | None:
    """A part of all multiply-accumulates in percent; None where there are none."""
    return Fraction(100 * macs, total) if total else None


def _entry_row(entry: Entry, total: int) -> Row:
    contraction = entry.kind in MAC_KINDS
    return Row(
        {
            "path": entry.path or "(model)",
            "kind": entry.kind,
            "sizes": sizes(entry),
            "macs": entry.macs,
            "share": share(entry.macs, total) if contraction else None,
            "elements": None if contraction else entry.size,
            "params": entry.params,
            "active_params": entry.active_params,
        }
    )


def _kind_row(kind: str, ledger: Ledger, total: int) -> Row:
    part = ledger.select(lambda entry: entry.kind == kind)
    contraction = kind in MAC_KINDS
    return Row(
        {
            "path": kind,
            "macs": part.macs,
            "share": share(part.macs, total) if contraction else None,
            "elements": None if contraction else sum(entry.size for entry in part),
            "params": part.params,
            "active_params": part.active_params,
        }
    )


def _total_row(ledger: Ledger, total: int, **blank: str) -> Row:
    return Row(
        total=True,
        values={
            "path": "total",
            "kind": "",
            **blank,
            "macs": ledger.macs,
            "share": share(ledger.macs, total),
            "elements": sum(entry.size for entry in ledger if entry.kind not in MAC_KINDS),
            "params": ledger.params,
            "active_params": ledger.active_params,
        },
    )


def _counter_section(name: str, measured: Measurement) -> Section:
    layout = Table(
        f"{name}-counters",
        f"{name}: counters",
        COUNTED,
        note_column="agrees",
    )
    return Section(layout, [_count_row(count, measured.ledger.macs) for count in measured.counts])


def _count_row(count, exact: int) -> Row:
    added = ", ".join(f"{name} {amount:+,}" for name, amount in count.additions.items())
    taken = count.macs is not None
    return Row(
        {
            "counter": count.counter,
            "device": count.device,
            "reading": count.macs,
            "difference": count.macs - exact if taken else None,
            "because": (added or "nothing") if taken else None,
            "agrees": ("yes" if count.agrees else f"no: {count.predicted_macs:,}") if taken else None,
        },
        notes=[text for text in (count.reason, count.why_there) if text],
    )


def causes_section(name: str, heading: str, counts: Iterable[Mapping[str, Any]]) -> Section:
    """The causes of each counter's difference, from the records of its counts."""
    layout = Table(
        name,
        heading,
        CALLED,
    )
    rows = []
    for count in counts:
        for position, cause in enumerate(count["causes"]):
            rows.append(Row({**cause, "counter": "" if position else count["counter"]}))
    return Section(layout, rows, detail=True)
