"""What every format shares: the renderer's calls, footnotes, and how a reader wants numbers."""

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, TextIO

from headcount.bench.table import Column, Row, Section, Table, shown
from headcount.formulas.ledger import flops

NOTE_WIDTH = 120
"""Where the lines of a note are broken at the latest."""
UNITS = {"M": 10**6, "G": 10**9}
AUTO, RAW = "auto", "raw"
DIGITS = 2
"""Decimals of a number in M or G."""


@dataclass(frozen=True)
class Style:
    """How tables for readers are printed.

    ``width``: of the terminal in characters, None where there is none and no line is too long. ``wide``: every column
    all the same. ``unit``: raw for integers, M, G, or auto for integers where they fit and M or G where they do not.
    ``flops``: instead of multiply-accumulates. ``colour``: of verdicts.
    """

    width: int | None = None
    wide: bool = False
    unit: str = AUTO
    flops: bool = False
    colour: bool = False

    @classmethod
    def of(cls, stream: TextIO, **choices: Any) -> "Style":
        """That of a stream: a terminal's own width, or that of the variable COLUMNS where it is none."""
        terminal = stream.isatty()
        width = shutil.get_terminal_size().columns if terminal else _columns()
        return cls(width=width, colour=terminal and not os.environ.get("NO_COLOR"), **choices)

    @property
    def room(self) -> int | None:
        """What a table may be wide."""
        return None if self.wide else self.width

    @property
    def notes(self) -> int:
        """What a note may be wide."""
        return min(NOTE_WIDTH, self.width or NOTE_WIDTH)

    def dressed(self, column: Column) -> Column:
        """A column in the unit that is asked for."""
        column = in_flops(column) if self.flops else column
        return scaled(column, self.unit) if self.unit in UNITS else column


def _columns() -> int | None:
    """Return the width that the variable COLUMNS holds; None where it holds no positive integer, as in shutil."""
    try:
        width = int(os.environ["COLUMNS"])
    except (KeyError, ValueError):
        return None
    return width if width > 0 else None


@dataclass(frozen=True)
class InFlops(Column):
    """A column of multiply-accumulates that prints floating-point operations."""

    def _number(self, value: Any) -> str:
        return super()._number(flops(value))


def in_flops(column: Column) -> Column:
    """``column`` in floating-point operations; itself where it is of something else."""
    if column.of != "MACs" or isinstance(column, InFlops):
        return column
    fields = {**vars(column), "head": column.head.replace("MACs", "FLOPs"), "of": "FLOPs"}
    if "FLOPs" not in fields["head"]:
        fields["unit"] = "FLOPs"
    return InFlops(**fields)


def scaled(column: Column, unit: str) -> Column:
    """``column`` in M or G; itself where it holds no integers that count something."""
    if column.kind != "int" or not column.of:
        return column
    what = column.unit.replace("bytes", f"{unit}B", 1) if "bytes" in column.unit else f"{unit} {column.unit}".strip()
    width = len(f"{largest_reserved(column) // UNITS[unit]:,}.") + DIGITS if column.width else 0
    return replace(column, kind="fixed", scale=UNITS[unit], digits=DIGITS, unit=what, width=width)


def largest_reserved(column: Column) -> int:
    """The largest integer that a column reserves room for, commas between its digits."""
    return 10 ** (column.width - column.width // 4) - 1


def unit_for(largest: int) -> str | None:
    """The unit in which a column of integers up to ``largest`` is short; None where it is short as it is."""
    return "G" if largest >= 10**11 else "M" if largest >= 10**7 else None


@dataclass
class Renderer(ABC):
    """Writes tables to a stream: ``begin(table)``, ``row(values, notes)`` per row, ``end(notes_below)``.

    ``values`` maps column keys to raw values; keys without a column are ignored, a missing key is a KeyError.
    ``notes`` are footnote texts of the row; equal texts share a number, which starts at 1 in every table.
    """

    stream: TextIO
    style: Style = Style()
    table: Table | None = field(default=None, init=False)
    footnotes: list[str] = field(default_factory=list, init=False)

    def print(self, section: Section, rows: Iterable[Row]) -> None:
        """A whole section, ``rows`` instead of its own."""
        self.begin(section.table)
        for row in rows:
            self.row(row.values, row.notes)
        self.end(section.below)

    def begin(self, table: Table) -> None:
        """The first of a table's calls."""
        if self.table:
            self.stream.write("\n")
        above = [shown(note) for note in table.notes_above]
        self.table, self.footnotes = replace(table, title=shown(table.title), notes_above=above), []

    @abstractmethod
    def row(self, values: Mapping[str, Any], notes: Sequence[str] = ()) -> None:
        """One row."""

    @abstractmethod
    def end(self, notes_below: Sequence[str] = ()) -> None:
        """The last of a table's calls."""

    def marks(self, notes: Sequence[str]) -> str:
        """The marks of footnotes; notes without a column for them are a ValueError."""
        if notes and not self.table.note_column:
            raise ValueError(f"table {self.table.name!r} has no column for notes")
        for note in notes:
            if note not in self.footnotes:
                self.footnotes.append(note)
        return "".join(f" [{number}]" for number in sorted({self.footnotes.index(n) + 1 for n in notes}))

    def cells(self, values: Mapping[str, Any], notes: Sequence[str]) -> list[str]:
        """The printed cells of a row, marks included."""
        marks = self.marks(notes)
        return [
            column.text(values[column.key]) + (marks if column.key == self.table.note_column else "")
            for column in map(self.style.dressed, self.table.columns)
        ]

    def below(self, notes_below: Sequence[str]) -> list[str]:
        """The numbered footnotes, then the notes without a number."""
        return [*(f"[{i}] {shown(note)}" for i, note in enumerate(self.footnotes, 1)), *map(shown, notes_below)]


class Collected(Renderer):
    """A renderer that needs all rows of a table before it writes them."""

    def begin(self, table: Table) -> None:
        super().begin(table)
        self.rows: list[tuple[Mapping[str, Any], str]] = []

    def row(self, values: Mapping[str, Any], notes: Sequence[str] = ()) -> None:
        # what cannot be printed is an error at its row
        self.cells(values, notes)
        self.rows.append((values, self.marks(notes)))

    def column_cells(self, column: Column) -> list[str]:
        """What a column prints, marks included."""
        own = self.table.note_column == column.key
        return [column.text(values[column.key]) + marks * own for values, marks in self.rows]

    def largest(self, column: Column) -> int:
        """The largest integer of a column, whatever its sign."""
        values = (row[column.key] for row, _ in self.rows)
        return max((abs(v) for v in values if v is not None and not isinstance(v, str)), default=0)


def number(value: Any) -> Any:
    """A raw value for files that know integers and decimals alone."""
    return float(value) if isinstance(value, Fraction) else value
