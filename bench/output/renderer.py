"""Base class of the renderers of all formats: footnotes, cells and the layout of a table."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TextIO

from headcount.bench.column import Column, escape_controls
from headcount.bench.output.layout import MIN_WRAP_WIDTH, Layout, Style, display_width, fit, largest_reserved, wrap
from headcount.bench.output.progress import with_progress
from headcount.bench.result import Row, Table


@dataclass
class Renderer(ABC):
    """Write tables to a stream, one after another.

    Equal footnotes of a table share a number; numbers start at 1 in every table.
    """

    stream: TextIO
    style: Style = Style()
    table: Table | None = field(default=None, init=False)
    footnotes: dict[str, int] = field(default_factory=dict, init=False)

    def print(self, table: Table) -> Table:
        """Write ``table`` and return it with its rows as a list."""
        if self.table:
            self.stream.write("\n")
        above = [escape_controls(note) for note in table.above]
        self.table = replace(table, title=escape_controls(table.title), above=above)
        self.footnotes, rows = {}, []
        self.write(self._number_notes(rows))
        self.stream.flush()
        return replace(table, rows=rows)

    @abstractmethod
    def write(self, rows: Iterator[Row]) -> None:
        """Write the current table, ``self.table``, with ``rows`` and the notes below it."""

    def _number_notes(self, rows: list[Row]) -> Iterator[Row]:
        """Yield the rows of the current table, append them to ``rows``, and number their notes."""
        for row in with_progress(self.table.rows, f"{self.table.name}, row"):
            for note in row.notes:
                self.footnotes.setdefault(note, len(self.footnotes) + 1)
            rows.append(row)
            yield row

    def cell(self, column: Column, row: Row) -> str:
        """Return a printed cell, with its footnote marks."""
        numbers = sorted({self.footnotes[note] for note in row.notes}) if column.key == self.table.note_column else ()
        return column.text(column.read(row)) + "".join(f" [{number}]" for number in numbers)

    def lines(self, column: Column, width: int, row: Row) -> list[str]:
        """Return a printed cell in lines of ``width``; numbers are never broken."""
        cell = self.cell(column, row)
        if self.style.width is None or column.side == "right" or display_width(cell) <= width:
            return [cell]
        indent = len(cell) - len(cell.lstrip())
        return wrap(cell, width, subsequent_indent=" " * (indent + 2 if indent else 0))

    def fit(self, rows: Sequence[Row] | None) -> Layout:
        """Return the layout of the current table for ``rows``; None for the widths that its columns reserve.

        The column with footnote marks is never hidden.
        """
        note = self.table.note_column
        columns = [replace(column, priority=0) if column.key == note else column for column in self.table.columns]
        if rows is None:
            return fit(columns, self.style, reserved_width, largest_reserved)

        def measure(column: Column) -> int:
            return max(map(display_width, [*column.head_lines, *(self.cell(column, row) for row in rows)]))

        def largest(column: Column) -> int:
            values = map(column.read, rows)
            return max((abs(value) for value in values if value is not None and not isinstance(value, str)), default=0)

        return fit(columns, self.style, measure, largest)

    def below(self) -> list[str]:
        """Return the notes below the current table: numbered footnotes, then those without a number."""
        numbered = [f"[{number}] {note}" for note, number in self.footnotes.items()]
        return [escape_controls(note) for note in (*numbered, *self.table.below)]


def heading_rows(columns: Sequence[Column]) -> list[tuple[str, ...]]:
    """Return the lines of a table's head, aligned at the bottom."""
    heads = [column.head_lines for column in columns]
    height = max(map(len, heads))
    return list(zip(*([""] * (height - len(head)) + head for head in heads), strict=True))


def reserved_width(column: Column) -> int:
    """Return the width of a column whose cells are not known yet."""
    return max(column.width, MIN_WRAP_WIDTH if column.wraps else 0, *map(len, column.head_lines))
