"""Plain text: tables that fit their terminal."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from headcount.bench.column import BAD, FAIR, GOOD, Column
from headcount.bench.output.layout import GAP, Layout, display_width, wrap
from headcount.bench.output.renderer import Renderer, heading_rows
from headcount.bench.result import Row

COLOURS = {GOOD: "\033[32m", FAIR: "\033[33m", BAD: "\033[31m"}
PLAIN = "\033[0m"


class Text(Renderer):
    """Write plain text.

    Columns are as wide as their cells where a table's rows are a list; else rows are printed as they come, in the
    widths that columns reserve.
    """

    printed_notes: frozenset[str] = frozenset()
    """Notes above earlier tables, which are not printed again."""
    layout: Layout | None = None

    def write(self, rows: Iterator[Row]) -> None:
        notes = [note for note in self.table.above if note not in self.printed_notes]
        self.printed_notes |= set(notes)
        self._notes([self.table.title, *notes])
        self.stream.write("\n")
        known = isinstance(self.table.rows, Sequence)
        rows = list(rows) if known else rows
        self.layout = self.fit(rows if known else None)
        for line in heading_rows(self.layout.columns):
            self._line(line)
        self._rule()
        self.stream.flush()
        for row in rows:
            cells = (self.lines(column, width, row) for column, width in self._columns())
            for line in zip_longest(*cells, fillvalue=""):
                self._line(line, coloured=self.style.colour)
            self.stream.flush()
        self._rule()
        self._notes([*self.below(), *self.layout.notes])

    def _columns(self) -> Iterator[tuple[Column, int]]:
        return zip(self.layout.columns, self.layout.widths, strict=True)

    def _line(self, cells: Sequence[str], coloured: bool = False) -> None:
        padded = []
        for (column, width), cell in zip(self._columns(), cells, strict=True):
            blank = " " * (width - display_width(cell))
            cell = _colour_verdict(cell, column) if coloured else cell
            padded.append(blank + cell if column.side == "right" else cell + blank)
        self.stream.write(GAP.join(padded).rstrip() + "\n")

    def _rule(self) -> None:
        self.stream.write(GAP.join("-" * width for width in self.layout.widths) + "\n")

    def _notes(self, notes: Sequence[str]) -> None:
        for note in notes:
            self.stream.write(wrap_note(note, self.style.note_width, whole=self.style.width is None) + "\n")


def _colour_verdict(cell: str, column: Column) -> str:
    """Colour the verdict in a cell."""
    word = cell.partition("[")[0].strip()
    tone = column.tones.get(word)
    return cell.replace(word, f"{COLOURS[tone]}{word}{PLAIN}", 1) if tone else cell


def wrap_note(note: str, width: int, whole: bool = True) -> str:
    """Break a note into lines of ``width``; longer words stay whole or are broken."""
    return "\n".join(wrap(note, width, subsequent_indent="    ", break_long_words=not whole))
