"""Axes of a panel inside a picture."""

from collections.abc import Sequence
from dataclasses import dataclass

from headcount.reports.svg import GRID, MUTED, Box, Picture, Scale


@dataclass(frozen=True)
class Axis:
    """A scale's ticks, as ``(value, text)``, and what is measured along it."""

    scale: Scale
    ticks: Sequence[tuple[float, str]]
    name: str


def panel(out: Picture, x: Axis, y: Axis) -> Box:
    """Draw grid, ticks and names of both axes; the panel's box."""
    left, right, bottom, top = x.scale.start, x.scale.end, y.scale.start, y.scale.end
    for value, said in x.ticks:
        out.line(x.scale(value), top, x.scale(value), bottom)
        out.text(x.scale(value), bottom + 16, said, anchor="middle", colour=MUTED, size=11)
    for value, said in y.ticks:
        out.line(left, y.scale(value), right, y.scale(value))
        out.text(left - 6, y.scale(value) + 4, said, anchor="end", colour=MUTED, size=11)
    out.text((left + right) / 2, bottom + 34, x.name, anchor="middle", colour=MUTED, size=11)
    out.text(left, top - 8, y.name, colour=MUTED, size=11)
    return left, top, right, bottom


def bars(out: Picture, rows: Sequence[tuple[str, float, str, str]], x: Scale, top: float, high: float) -> float:
    """Horizontal bars ``(name, value, text, colour)`` from the scale's low end, named at their left; where they end."""
    for i, (name, value, said, colour) in enumerate(rows):
        y = top + i * high
        out.text(x.start - 8, y + high / 2 + 4, name, anchor="end")
        out.rect(x.start, y + 2, max(x(value) - x.start, 0.5), high - 4, colour=colour, title=f"{name}: {said}")
        out.text(max(x(value), x.start) + 6, y + high / 2 + 4, said)
    out.line(x.start, top - 2, x.start, top + len(rows) * high + 2, colour=GRID)
    return top + len(rows) * high
