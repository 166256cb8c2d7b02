"""Which columns of a table fit a line, in which unit, and how wide each is: for characters and for points alike."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headcount.bench.output.base import AUTO, Style, scaled, unit_for
from headcount.bench.table import Column

SQUEEZED = 10
"""The least width that a text which should not be broken is broken at, where nothing else is left to do."""


@dataclass(frozen=True)
class Layout:
    """The columns that are printed, their widths, those that are left out, and whether integers became M or G."""

    columns: Sequence[Column]
    widths: Sequence[float]
    left_out: Sequence[Column]
    rounded: bool

    def says(self) -> list[str]:
        """What a reader must know of it."""
        names = ", ".join(" ".join(column.head_lines) for column in self.left_out)
        out = [f"Left out for want of room: {names} (--wide)."] if names else []
        return out + (["M and G are rounded: --unit raw for integers."] if self.rounded else [])


def fit(
    columns: Sequence[Column],
    style: Style,
    room: float | None,
    gap: float,
    measure: Callable[[Column], float],
    largest: Callable[[Column], int],
    word: Callable[[Column], float],
) -> Layout:
    """The layout of ``columns`` in ``room``, None where that has no end.

    ``measure`` gives what a column takes in one line, ``gap`` what stands between two, ``largest`` the largest integer
    of a column, ``word`` the least that a text can be broken to. First integers become M or G, where the style leaves
    it open; then columns are left out, by priority and from the right; then texts are broken that should not be.
    """
    columns = [style.dressed(column) for column in columns]
    short = [_short(column, style, largest) for column in columns]

    def least(column: Column) -> float:
        return min(measure(column), max(column.wraps, word(column))) if column.wraps else measure(column)

    def fits(kept: Sequence[Column]) -> bool:
        return room is None or sum(map(least, kept)) + gap * (len(kept) - 1) <= room

    def laid(kept: Sequence[Column], left_out: Sequence[Column], least: Callable[[Column], float]) -> Layout:
        widths = _widths([measure(c) for c in kept], [least(c) for c in kept], room, gap)
        return Layout(kept, widths, left_out, rounded=any(column not in columns for column in kept))

    if fits(columns):
        return laid(columns, [], least)
    order = sorted(range(len(columns)), key=lambda i: (columns[i].priority, i))
    # the first says what a row is
    droppable = [i for i in order if i and columns[i].priority]
    for number in range(len(droppable) + 1):
        out = set(droppable[len(droppable) - number :])
        kept = [column for i, column in enumerate(short) if i not in out]
        if fits(kept):
            return laid(kept, [columns[i] for i in sorted(out)], least)

    def squeezed(column: Column) -> float:
        return measure(column) if column.side == "right" else min(measure(column), word(column))

    return laid(kept, [columns[i] for i in sorted(droppable)], squeezed)


def _short(column: Column, style: Style, largest: Callable[[Column], int]) -> Column:
    """The column in M or G, where that makes it shorter and the style leaves it open."""
    if style.unit != AUTO or column.kind != "int" or not column.of:
        return column
    unit = unit_for(largest(column))
    return scaled(column, unit) if unit else column


def _widths(natural: list[float], least: list[float], room: float | None, gap: float) -> list[float]:
    """Least widths, and what room is left shared equally among the columns that take more."""
    if room is None:
        return natural
    widths, left = list(least), room - sum(least) - gap * (len(least) - 1)
    while left > 0 and (wanting := [i for i, width in enumerate(widths) if width < natural[i]]):
        share = max(left / len(wanting), 1)
        for i in wanting:
            more = min(share, natural[i] - widths[i], left)
            widths[i] += more
            left -= more
    return widths
