"""Options for tables that people read: width, unit, colour."""

import os
import shutil
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TextIO

from headcount.bench.table import Column

NOTE_WIDTH = 120
"""The largest width of a note in characters."""
UNITS = {"M": 10**6, "G": 10**9}
AUTO, RAW = "auto", "raw"
DIGITS = 2
"""Decimals of a number in M or G."""


@dataclass(frozen=True)
class Style:
    """Options for tables that people read.

    ``width``: of the terminal in characters, None for no limit. ``unit``: raw for integers, M, G, or auto for integers
    where they fit and M or G where they do not. ``flops``: print FLOPs instead of MACs. ``colour``: colour the
    verdicts. ``hints``: notes name command-line options.
    """

    width: int | None = None
    unit: str = AUTO
    flops: bool = False
    colour: bool = False
    hints: bool = True

    @classmethod
    def of(cls, stream: TextIO, wide: bool = False, **choices: Any) -> "Style":
        """Return the style for ``stream``: as wide as its terminal, else by the environment variable COLUMNS.

        ``wide``: print every column, however narrow the terminal is.
        """
        terminal = stream.isatty()
        is_limited = not wide and (terminal or "COLUMNS" in os.environ)
        width = shutil.get_terminal_size((80 if terminal else 0, 0)).columns or None if is_limited else None
        return cls(width=width, colour=terminal and not os.environ.get("NO_COLOR"), **choices)

    @property
    def note_width(self) -> int:
        """The largest width of a note."""
        return min(NOTE_WIDTH, self.width or NOTE_WIDTH)

    def adapt(self, column: Column) -> Column:
        """Return ``column`` in the requested unit."""
        column = in_flops(column) if self.flops else column
        return scaled(column, self.unit) if self.unit in UNITS else column


def in_flops(column: Column) -> Column:
    """Return ``column`` in FLOPs, two for each MAC; a column of anything but MACs as it is."""
    if column.of != "MACs":
        return column
    head = column.head.replace("MACs", "FLOPs")
    unit = column.unit if "FLOPs" in head else "FLOPs"
    return replace(column, head=head, unit=unit, of="FLOPs", scale=Fraction(column.scale, 2))


def scaled(column: Column, unit: str) -> Column:
    """Return ``column`` in M or G; a column that counts nothing as it is."""
    if not column.of:
        return column
    what = column.unit.replace("bytes", f"{unit}B", 1) if "bytes" in column.unit else f"{unit} {column.unit}".strip()
    width = len(f"{largest_reserved(column) // UNITS[unit]:,}.") + DIGITS if column.width else 0
    return replace(column, kind="fixed", scale=column.scale * UNITS[unit], digits=DIGITS, unit=what, width=width)


def largest_reserved(column: Column) -> int:
    """Return the largest integer that fits a column's reserved width, commas included."""
    return 10 ** (column.width - column.width // 4) - 1


def unit_for(largest: int) -> str | None:
    """Return the unit for integers up to ``largest``; None where they are short."""
    return "G" if largest >= 10**11 else "M" if largest >= 10**7 else None
