"""CSV: one table a file, with JSON's keys, raw integers and decimals."""

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

from headcount.bench.output.renderer import Renderer
from headcount.bench.table import INTERVAL, Column, Row, Section, shown


class Csv(Renderer):
    """Write raw numbers under the columns' keys.

    Unknown values are empty fields, notes are the last column, an interval is three columns, totals are left out.
    """

    def write(self, section: Section, rows: Iterator[Row]) -> None:
        import pandas

        rows = [row for row in rows if not row.total]
        data = {}
        for column in self.table.columns:
            data |= _fields(column, (row.values[column.key] for row in rows))
        if self.table.note_column:
            data["notes"] = [shown("; ".join(row.notes)) for row in rows]
        # dtype object: integers have no largest value, and an unknown value does not make decimals of the others
        self.stream.write(pandas.DataFrame(data, dtype=object).to_csv(index=False, lineterminator="\n"))


def _fields(column: Column, cells: Iterable[Any]) -> dict[str, list[Any]]:
    cells = list(cells)
    if column.kind == "interval":
        return {f"{column.key}.{name}": [cell and _number(cell[name]) for cell in cells] for name in INTERVAL}
    if column.words:
        cells = [None if isinstance(cell, str) else cell for cell in cells]
    if column.code:
        cells = [_escape_formula(cell) for cell in cells]
    return {column.key: [shown(cell) if isinstance(cell, str) else _number(cell) for cell in cells]}


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, Fraction) else value


def _escape_formula(cell: Any) -> Any:
    """Put an apostrophe before a text that a spreadsheet would run as a formula."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t")) else cell
