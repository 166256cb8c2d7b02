"""CSV: one table a file, the JSON's names, raw integers and decimals, made by pandas."""

from collections.abc import Sequence
from typing import Any

from headcount.bench.output.base import Collected, number
from headcount.bench.table import INTERVAL, Column, shown


class Csv(Collected):
    """Raw numbers under the columns' keys, unknown ones as empty fields; notes in a last column. An interval is three
    columns; rows that sum others are left out."""

    def begin(self, table) -> None:
        """ValueError for a second table: a file has one."""
        if self.table:
            raise ValueError(f"a CSV file holds one table, and {table.name!r} is another")
        super().begin(table)
        self.notes: list[str] = []

    def print(self, section, rows) -> None:
        """A whole section but its totals."""
        super().print(section, (row for row in rows if not row.total))

    def row(self, values, notes: Sequence[str] = ()) -> None:
        """One row."""
        super().row(values, notes)
        self.notes.append(shown("; ".join(notes)))

    def end(self, notes_below: Sequence[str] = ()) -> None:
        """Everything, at once."""
        import pandas

        data = {}
        for column in self.table.columns:
            for key, cells in self._fields(column).items():
                # of any type: integers have no largest one here, and what is unknown makes no decimals of the others
                data[key] = pandas.Series(cells, dtype=object)
        if self.table.note_column:
            data["notes"] = pandas.Series(self.notes, dtype=object)
        self.stream.write(pandas.DataFrame(data).to_csv(index=False, lineterminator="\n"))
        self.stream.flush()

    def _fields(self, column: Column) -> dict[str, list[Any]]:
        cells = [values[column.key] for values, _ in self.rows]
        if column.kind == "interval":
            return {f"{column.key}.{name}": [cell and number(cell[name]) for cell in cells] for name in INTERVAL}
        if column.words:
            cells = [None if isinstance(cell, str) else cell for cell in cells]
        if column.code:
            cells = [_text(cell) for cell in cells]
        return {column.key: [shown(cell) if isinstance(cell, str) else number(cell) for cell in cells]}


def _text(cell: Any) -> Any:
    """A text that a spreadsheet would run as a formula, with an apostrophe before it, which says that it is a text."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t")) else cell
