"""Plain text: columns as wide as what they hold, and no line wider than its terminal."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from headcount.bench.output.base import Collected, largest_reserved
from headcount.bench.output.layout import SQUEEZED, Layout, fit
from headcount.bench.table import BAD, FAIR, GOOD, Column, Row, Section

GAP = "  "
COLOURS = {GOOD: "\033[32m", FAIR: "\033[33m", BAD: "\033[31m"}
PLAIN = "\033[0m"


class Text(Collected):
    """Plain text. Rows that are known together are measured; those that come one by one are printed one by one, in
    the widths that their columns reserve."""

    said: tuple[str, ...] = ()
    """Notes that stand above an earlier table."""
    layout: Layout | None = None

    def print(self, section: Section, rows: Iterable[Row]) -> None:
        """A whole section: measured where its rows are a list, else row by row."""
        if not isinstance(section.rows, Sequence):
            super().print(section, rows)
            return
        self._above(section.table)
        for row in rows:
            Collected.row(self, row.values, row.notes)
        self._head(self._measured, self.largest)
        for values, marks in self.rows:
            self._row(values, marks)
        self.end(section.below)

    def begin(self, table) -> None:
        """The title, what stands above, and the heads, in the widths that columns reserve."""
        self._above(table)
        self._head(_reserved, largest_reserved)

    def row(self, values: Mapping[str, Any], notes: Sequence[str] = ()) -> None:
        """One row, at once."""
        self._row(values, self.marks(notes))
        self.stream.flush()

    def end(self, notes_below: Sequence[str] = ()) -> None:
        """Footnotes, what stands below, and what was left out."""
        self._rule()
        self._lines(*map(self._wrapped, [*self.below(notes_below), *self.layout.says()]))
        self.stream.flush()

    def _above(self, table) -> None:
        Collected.begin(self, table)
        notes = [note for note in self.table.notes_above if note not in self.said]
        self.said += tuple(notes)
        self._lines(*map(self._wrapped, [self.table.title, *notes]), "")

    def _head(self, measure, largest) -> None:
        # footnotes are marked in a column that stays
        columns = [replace(c, priority=0) if c.key == self.table.note_column else c for c in self.table.columns]
        self.layout = fit(columns, self.style, self.style.room, len(GAP), measure, largest, _word)
        heads = [column.head_lines for column in self.layout.columns]
        height = max(map(len, heads))
        for line in zip(*([""] * (height - len(lines)) + lines for lines in heads), strict=True):
            self._line(line)
        self._rule()
        self.stream.flush()

    def _measured(self, column: Column) -> int:
        return max(map(len, [*column.head_lines, *self.column_cells(column)]))

    def _row(self, values: Mapping[str, Any], marks: str) -> None:
        cells = [self._broken(column, width, values, marks) for column, width in self._columns()]
        for line in zip_longest(*cells, fillvalue=""):
            self._line(line, toned=True)

    def _broken(self, column: Column, width: int, values: Mapping[str, Any], marks: str) -> list[str]:
        cell = column.text(values[column.key]) + (marks if column.key == self.table.note_column else "")
        if len(cell) <= width or column.side == "right" or self.style.room is None:
            return [cell]
        return textwrap.wrap(cell, width, break_on_hyphens=False)

    def _columns(self) -> Iterable[tuple[Column, int]]:
        return zip(self.layout.columns, map(int, self.layout.widths), strict=True)

    def _line(self, cells: Sequence[str], toned: bool = False) -> None:
        padded = [
            self._toned(cell.rjust(width) if column.side == "right" else cell.ljust(width), column, toned)
            for (column, width), cell in zip(self._columns(), cells, strict=True)
        ]
        self._lines(GAP.join(padded).rstrip())

    def _toned(self, cell: str, column: Column, toned: bool) -> str:
        word = cell.partition("[")[0].strip() if toned and self.style.colour else ""
        tone = column.tones.get(word)
        return cell.replace(word, f"{COLOURS[tone]}{word}{PLAIN}", 1) if tone else cell

    def _rule(self) -> None:
        self._lines(GAP.join("-" * width for _, width in self._columns()))

    def _wrapped(self, note: str) -> str:
        return wrapped(note, self.style.notes, whole=self.style.width is None)

    def _lines(self, *lines: str) -> None:
        self.stream.writelines(f"{line}\n" for line in lines)


def wrapped(note: str, width: int, whole: bool = True) -> str:
    """A note in lines of ``width``, words longer than that ``whole`` or broken."""
    return textwrap.fill(note, width, subsequent_indent="    ", break_long_words=not whole, break_on_hyphens=False)


def _word(column: Column) -> int:
    return max(SQUEEZED, *map(len, column.head_lines))


def _reserved(column: Column) -> int:
    return max(column.width, SQUEEZED if column.wraps else 0, *map(len, column.head_lines))
