"""What a command prints: sections of rows that are made as they are printed, in any format."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TextIO

from headcount.bench.case import Case
from headcount.bench.table import Table, renderer, write_json

FORMATS = ("text", "md", "json", "csv", "latex")
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Row:
    """One printed row: raw values by column, footnotes, its JSON records, what is wrong with it, and the case that
    it is a projection of, if of one."""

    values: dict[str, Any]
    notes: Sequence[str] = ()
    records: Sequence[dict[str, Any]] = ()
    failures: Sequence[str] = ()
    case: Case | None = None


@dataclass
class Section:
    """A table and its rows; ``below`` is read after the last row. ``facts`` go into JSON beside the rows.

    ``ideal``: whether a case among the rows has an ideal form.
    """

    table: Table
    rows: Iterable[Row]
    below: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    ideal: bool = False

    def only(self, *keys: str) -> "Section":
        """The same rows under the columns called ``keys`` alone, in this order; footnotes stand in the last of them
        where their own is not among them. KeyError for a column that is not there."""
        columns = {column.key: column for column in self.table.columns}
        marked = self.table.note_column
        marked = marked if marked in ("", *keys) else keys[-1]
        return replace(self, table=replace(self.table, columns=[columns[key] for key in keys], note_column=marked))


def emit(sections: Iterable[Section], form: str, stream: TextIO) -> list[str]:
    """Print every section in ``form`` (one of FORMATS); the failures of all rows, in order."""
    return _emit_json(sections, stream) if form == "json" else _emit_tables(sections, form, stream)


def _emit_tables(sections, form, stream):
    out, failures = renderer(form, stream), []
    for section in sections:
        out.begin(section.table)
        for row in section.rows:
            out.row(row.values, row.notes)
            failures += row.failures
        out.end(section.below)
    return failures


def _emit_json(sections, stream):
    tables, failures = [], []
    for section in sections:
        records = []
        for row in section.rows:
            records += row.records
            failures += row.failures
        facts = {**section.facts, "below": section.below}
        tables.append({"name": section.table.name, "title": section.table.title, **facts, "rows": records})
    write_json(stream, {"schema_version": SCHEMA_VERSION, "tables": tables})
    return failures
