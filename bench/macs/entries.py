"""One model in detail: its ledger per module and kind, and how each counter's reading comes about."""

from collections.abc import Iterator
from fractions import Fraction

from headcount.bench.as_json import as_records
from headcount.bench.case import describe_input
from headcount.bench.measure import Measurement
from headcount.bench.render import Row, Section
from headcount.bench.table import Column, Table
from headcount.formulas.ledger import MAC_KINDS, Entry, Ledger

SHARE = Column("share", "share", unit="%", kind="fixed", scale=1, digits=2)
COSTS = (
    Column("macs", "MACs", kind="int", width=13),
    SHARE,
    Column("elements", "elements", kind="int", width=11),
    Column("params", "params", kind="int", width=11),
    Column("active_params", "params\nactive", kind="int", width=11),
)
ABOUT = (
    "MACs: multiply-accumulates of one forward pass. Elements: outputs of an operation without any. A * stands for "
    "the index of a repeated layer, all repetitions together."
)


def sections(name: str, measured: Measurement, heading: str) -> Iterator[Section]:
    """The ledger of ``measured`` entry by entry, its sums by kind, and its counters."""
    about = f"Input: {describe_input(measured.lengths)}."
    entries = Table(
        name,
        heading,
        [
            Column("path", "module", width=36),
            Column("kind", "kind", width=13),
            Column("sizes", "sizes", width=44),
            *COSTS,
        ],
        notes_above=[about, ABOUT],
    )
    failures = measured.disagreements(name)
    total = measured.ledger.macs
    rows = [_entry_row(entry, total) for entry in measured.ledger] + [_total_row(measured.ledger, total, sizes="")]
    rows[0] = Row(rows[0].values, records=as_records(name, measured), failures=failures)
    yield Section(entries, rows, below=list(failures))

    kinds = dict.fromkeys(entry.kind for entry in measured.ledger)
    by_kind = [_kind_row(kind, measured.ledger, total) for kind in kinds] + [_total_row(measured.ledger, total)]
    yield Section(Table(f"{name}-kinds", f"{name}: by kind", [Column("path", "kind", width=13), *COSTS]), by_kind)
    if measured.counts:
        yield _counter_section(name, measured)


def _sizes(entry: Entry) -> str:
    sizes = " ".join(f"{letter}={size}" for letter, size in entry.dims.items())
    return f"{entry.times} x {sizes}" if entry.times != 1 else sizes


def _share(macs: int, total: int) -> Fraction:
    return Fraction(100 * macs, total)


def _entry_row(entry: Entry, total: int) -> Row:
    contraction = entry.kind in MAC_KINDS
    return Row(
        {
            "path": entry.path or "(model)",
            "kind": entry.kind,
            "sizes": _sizes(entry),
            "macs": entry.macs,
            "share": _share(entry.macs, total) if contraction else None,
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
            "share": _share(part.macs, total) if contraction else None,
            "elements": None if contraction else sum(entry.size for entry in part),
            "params": part.params,
            "active_params": part.active_params,
        }
    )


def _total_row(ledger: Ledger, total: int, **blank: str) -> Row:
    return Row(
        {
            "path": "total",
            "kind": "",
            **blank,
            "macs": ledger.macs,
            "share": _share(ledger.macs, total),
            "elements": sum(entry.size for entry in ledger if entry.kind not in MAC_KINDS),
            "params": ledger.params,
            "active_params": ledger.active_params,
        }
    )


def _counter_section(name: str, measured: Measurement) -> Section:
    layout = Table(
        f"{name}-counters",
        f"{name}: counters",
        [
            Column("counter", "counter", width=15),
            Column("device", "device", width=6),
            Column("reading", "reading", kind="int", width=13),
            Column("difference", "reading\nless exact", kind="int", width=13, sign=True),
            Column("because", "what it adds, by name", width=60),
            Column("agrees", "as its rules\npredict"),
        ],
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
