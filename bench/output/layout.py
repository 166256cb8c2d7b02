"""Choose the columns of a table that fit its width, their unit, and how wide each is."""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from unicodedata import combining, east_asian_width

from headcount.bench.output.base import AUTO, Style, scaled, unit_for
from headcount.bench.table import Column

GAP = "  "
FILLER = "\0"
MIN_WRAP_WIDTH = 10
"""The least width at which texts are broken that should not be, where nothing else helps."""


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
    hideable = sorted((i for i in visible if i and columns[i].priority), key=lambda i: (columns[i].priority, i))
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


def wrap(text: str, width: int, **options: Any) -> list[str]:
    """Break ``text`` into lines of ``width``, between words where that is possible."""
    # textwrap counts characters: a wide one gets a second, which is removed again
    padded = "".join(c + FILLER * (display_width(c) - 1) for c in text)
    if padded != text:
        # a line may end between the two
        width -= 1
    lines = textwrap.wrap(padded, width, break_on_hyphens=False, **options)
    return [line.replace(FILLER, "") for line in lines]
