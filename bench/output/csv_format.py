"""CSV: one table a file, with JSON's keys, raw integers and decimals."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from headcount.bench.column import INTERVAL, Column, escape_controls
from headcount.bench.output.renderer import Renderer
from headcount.bench.result import Row


class Csv(Renderer):
    """Write raw numbers under the columns' keys.

    Unknown values are empty fields, notes are the last column, an interval is three columns, totals are left out.
    """

    def write(self, rows: Iterator[Row]) -> None:
        columns, noted = self.table.columns, bool(self.table.note_column)
        keys = [key for column in columns for key in _fields(column, None)] + ["notes"] * noted
        found = []
        for row in rows:
            if not row.total:
                fields = {"notes": escape_controls("; ".join(row.notes))}
                for column in columns:
                    fields |= _fields(column, column.read(row))
                found.append(fields)
        self.stream.write(table_as_csv(found, keys))


def table_as_csv(rows: Sequence[Mapping[str, Any]], keys: Sequence[str] = ()) -> str:
    """Return a header and a line for each row, with all keys of the rows or with ``keys``. Unknown values are empty;
    fractions are decimals."""
    stream = io.StringIO()
    keys = keys or list(dict.fromkeys(key for row in rows for key in row))
    writer = csv.DictWriter(stream, keys, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: float(x) if isinstance(x, Fraction) else x for key, x in row.items()} for row in rows)
    return stream.getvalue()


def _fields(column: Column, cell: Any) -> dict[str, Any]:
    if column.kind == "interval":
        return {f"{column.key}.{name}": cell and cell[name] for name in INTERVAL}
    if column.words and isinstance(cell, str):
        cell = None
    if column.code:
        cell = _escape_formula(cell)
    return {column.key: escape_controls(cell, kept="") if isinstance(cell, str) else cell}


def _escape_formula(cell: Any) -> Any:
    """Put an apostrophe before a text that a spreadsheet would run as a formula."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t")) else cell
