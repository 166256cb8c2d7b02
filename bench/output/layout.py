"""Options for tables that people read, and the layout that follows: the columns that fit, their unit and widths."""

import os
import re
import shutil
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TextIO
from unicodedata import combining, east_asian_width

from headcount.bench.column import Column

NOTE_WIDTH = 120
"""The largest width of a note in characters."""
UNITS = {"M": 10**6, "G": 10**9}
AUTO, RAW = "auto", "raw"
DIGITS = 2
"""Decimals of a number in M or G."""
GAP = "  "
FILLER = "\0"
MIN_WRAP_WIDTH = 10
"""The least width at which texts are broken that should not be, where nothing else helps."""


@dataclass(frozen=True)
class Style:
    """Options for tables that people read.

    ``width``: of the terminal in characters, None for no limit. ``unit``: raw for integers, M, G, or auto for integers
    where they fit and M or G where they do not. ``flops``: print FLOPs instead of MACs. ``colour``: colour the
    verdicts. ``hints``: notes name command-line options. ``wide``: hide no column.
    """

    width: int | None = None
    unit: str = AUTO
    flops: bool = False
    colour: bool = False
    hints: bool = True
    wide: bool = False

    @classmethod
    def of(cls, stream: TextIO, wide: bool = False, **choices: Any) -> "Style":
        """Return the style for ``stream``: as wide as its terminal, else by the environment variable COLUMNS.

        ``wide``: print every column, however narrow the terminal is.
        """
        terminal = stream.isatty()
        is_limited = not wide and (terminal or "COLUMNS" in os.environ)
        width = shutil.get_terminal_size((80 if terminal else 0, 0)).columns or None if is_limited else None
        return cls(width=width, colour=terminal and not os.environ.get("NO_COLOR"), wide=wide, **choices)

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
    """Return ``column`` in M or G; a column that counts nothing, or is in M or G, as it is."""
    if not column.of or column.scale > 1:
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


def display_width(text: str) -> int:
    """Return how many columns of a terminal ``text`` takes: two for a wide character, none for a combining one."""
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


@dataclass(frozen=True)
class Layout:
    """The printed columns, their widths, and notes about hidden columns and rounded integers."""

    columns: Sequence[Column]
    widths: Sequence[int]
    notes: Sequence[str] = ()


def fit(
    columns: Sequence[Column],
    style: Style,
    measure: Callable[[Column], int],
    largest: Callable[[Column], int],
) -> Layout:
    """Return the layout of ``columns`` in the style's width.

    ``measure`` returns the width of a column on one line, ``largest`` its largest integer. Where columns do not fit,
    integers become M or G unless the style has a unit; then columns are hidden, those of the largest priority
    and the rightmost first; then texts are broken that should not be.
    """
    columns = [style.adapt(column) for column in columns]
    if style.width is None:
        return Layout(columns, list(map(measure, columns)))

    def widths(column: Column, squeeze: bool = False) -> tuple[int, int]:
        """Return the least and the natural width."""
        natural = measure(column)
        if column.side == "right" or not (column.wraps or squeeze):
            return natural, natural
        word = max(MIN_WRAP_WIDTH, *map(len, column.head_lines))
        return min(natural, word if squeeze else max(word, column.wraps)), natural

    def free_width() -> int:
        return style.width - sum(least for least, _ in sizes.values()) - len(GAP) * (len(sizes) - 1)

    visible = dict(enumerate(columns))
    sizes = {i: widths(column) for i, column in visible.items()}
    if free_width() < 0:
        visible = {i: _abbreviate(column, style, largest) for i, column in visible.items()}
        sizes = {i: widths(column) for i, column in visible.items()}
    # the first column names the rows
    may_hide = [i for i in visible if i and columns[i].priority and not style.wide]
    hideable = sorted(may_hide, key=lambda i: (columns[i].priority, i))
    while free_width() < 0 and hideable:
        i = hideable.pop()
        del visible[i], sizes[i]
    if free_width() < 0:
        sizes = {i: widths(column, squeeze=True) for i, column in visible.items()}
    hidden = ", ".join(" ".join(column.head_lines) for i, column in enumerate(columns) if i not in visible)
    notes = [f"Hidden columns{' (use --wide)' if style.hints else ''}: {hidden}."] if hidden else []
    if any(column not in columns for column in visible.values()):
        notes.append("Rounded; --unit raw prints integers." if style.hints else "The table is rounded.")
    return Layout(list(visible.values()), _distribute(list(sizes.values()), free_width()), notes)


def _distribute(widths: Sequence[tuple[int, int]], rest: int) -> list[int]:
    """Return the least widths, with the ``rest`` shared equally by the columns whose natural width is larger."""
    out = [least for least, _ in widths]
    while rest > 0 and (growing := [i for i, (_, natural) in enumerate(widths) if out[i] < natural]):
        for i in growing[:rest]:
            out[i] += 1
        rest -= len(growing)
    return out


def _abbreviate(column: Column, style: Style, largest: Callable[[Column], int]) -> Column:
    """Return the column in M or G where that makes it shorter and the style leaves the unit open."""
    if style.unit != AUTO or not column.of:
        return column
    unit = unit_for(largest(column))
    return scaled(column, unit) if unit else column


class _Wrapper(textwrap.TextWrapper):
    """Breaks lines also between the words of ``moa:K=8,E=16``."""

    wordsep_simple_re = re.compile(r"(\s+)|(?<=,)(?=[^\W\d])")


def wrap(text: str, width: int, **options: Any) -> list[str]:
    """Break ``text`` into lines of ``width``, between words or settings of a target where that is possible."""
    # textwrap counts characters: a wide one gets a second, which is removed again
    padded = "".join(c + FILLER * (display_width(c) - 1) for c in text)
    if padded != text:
        # a line may end between the two
        width -= 1
    lines = _Wrapper(width, break_on_hyphens=False, **options).wrap(padded)
    return [line.replace(FILLER, "") for line in lines]
