"""Tables of printed training FLOPs, utilisation and parameters: each cell, what its rule gives, and the verdict."""

from functools import cache

from headcount.bench.case import Case
from headcount.bench.table import TONES, Column, Row, Section, Table
from headcount.formulas.published import tables
from headcount.formulas.published.figures import Cases
from headcount.formulas.published.verdicts import Judged, judge

COLUMNS = (
    Column("row", "row"),
    Column("figure", "figure"),
    Column("printed", "printed", align="right", priority=0),
    Column("value", "by the rule", align="right", priority=0),
    Column("verdict", "verdict", priority=0, tones=TONES),
)
"""Columns of a table of printed cells."""


def section(name: str) -> Section:
    """Return the table called ``name``, a row for each printed cell. A row fails where its verdict is not as typed."""
    table = tables.load(name)
    notes = [f"Source: {table.source}, {table.place}. {table.reading}"]
    notes += [table.about] if table.about else []
    notes += [figure.statement for figure in table.columns]
    rows = [row_of(table.name, cell) for cell in judge(table, cases())]
    facts = {name: getattr(table, name) for name in ("source", "place", "read", "address", "second")}
    layout = Table(table.name, f"{table.name}: {table.title}", COLUMNS, notes, note_column="verdict")
    return Section(layout, rows, facts=facts)


def row_of(table: str, cell: Judged) -> Row:
    """Return the row of a cell of the table called ``table``."""
    failures = []
    if cell.verdict != cell.expected:
        failures = [f"{table}, {cell.row.name}, {cell.figure.head}: {cell.verdict!r}, typed as {cell.expected!r}"]
    values = {
        "row": cell.row.name,
        "figure": cell.figure.head,
        "printed": cell.printed,
        "value": cell.shown,
        "verdict": cell.verdict,
    }
    record = {**values, "because": cell.because, "expected_verdict": cell.expected}
    notes = [text for text in (cell.because, *failures) if text]
    return Row(values, notes=notes, records=[record], failures=failures)


def cases() -> Cases:
    """Return a function that makes a case once for each preset and fields."""
    made = cache(lambda preset, fields: Case.of(preset, dict(fields)))
    return lambda preset, fields: made(preset, tuple(sorted(fields.items())))
