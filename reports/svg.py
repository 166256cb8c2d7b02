"""Scatter plots as SVG text: the same points give the same bytes on every machine, with no drawing library."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import floor, log10

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 520, 340, 56, 44, 16, 24
COLOURS = {True: "#c0392b", False: "#2c3e50"}
FONT = 'font-family="sans-serif" font-size="10"'


@dataclass(frozen=True)
class Point:
    """One labelled point; ``marked`` decides its colour."""

    x: float
    y: float
    label: str
    marked: bool


@dataclass(frozen=True)
class Panel:
    """Points over two named axes."""

    x: str
    y: str
    points: Sequence[Point]


def figure(panels: Sequence[Panel], legend: Mapping[bool, str]) -> str:
    """Panels two in a row under a legend. Points that coincide share one label."""
    rows = -(-len(panels) // 2)
    width, height = 2 * WIDTH, rows * HEIGHT + 24
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {FONT}>']
    out.append(f'<rect width="{width}" height="{height}" fill="white"/>')
    for i, (marked, name) in enumerate(legend.items()):
        out.append(f'<circle cx="{LEFT + 220 * i}" cy="12" r="4" fill="{COLOURS[marked]}"/>')
        out.append(f'<text x="{LEFT + 220 * i + 10}" y="16">{escape(name)}</text>')
    for i, panel in enumerate(panels):
        out.append(f'<g transform="translate({i % 2 * WIDTH},{24 + i // 2 * HEIGHT})">')
        out += [*_panel(panel), "</g>"]
    return "\n".join([*out, "</svg>"]) + "\n"


def _panel(panel: Panel) -> list[str]:
    x_ticks, y_ticks = (ticks([getattr(p, axis) for p in panel.points]) for axis in ("x", "y"))
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def across(x: float) -> float:
        return LEFT + (x - x_ticks[0]) / (x_ticks[-1] - x_ticks[0]) * (right - LEFT)

    def down(y: float) -> float:
        return bottom - (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0]) * (bottom - TOP)

    out = []
    for x in x_ticks:
        at = f"{across(x):.1f}"
        out.append(f'<line x1="{at}" y1="{TOP}" x2="{at}" y2="{bottom}" stroke="#ddd"/>')
        out.append(f'<text x="{at}" y="{bottom + 14}" text-anchor="middle">{x:,g}</text>')
    for y in y_ticks:
        at = f"{down(y):.1f}"
        out.append(f'<line x1="{LEFT}" y1="{at}" x2="{right}" y2="{at}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{down(y) + 3:.1f}" text-anchor="end">{y:g}</text>')
    out.append(f'<text x="{(LEFT + right) / 2:.1f}" y="{bottom + 32}" text-anchor="middle">{escape(panel.x)}</text>')
    out.append(f'<text x="{LEFT}" y="{TOP - 4}" text-anchor="middle">{escape(panel.y)}</text>')
    for place, labels in _together(panel.points).items():
        x, y, marked = place
        side, offset = ("start", 6) if across(x) < (LEFT + right) / 2 else ("end", -6)
        out.append(f'<circle cx="{across(x):.1f}" cy="{down(y):.1f}" r="4" fill="{COLOURS[marked]}"/>')
        where = f'x="{across(x) + offset:.1f}" y="{down(y) - 5:.1f}" text-anchor="{side}"'
        out.append(f'<text {where} fill="{COLOURS[marked]}">{escape(", ".join(labels))}</text>')
    return out


def _together(points: Sequence[Point]) -> dict[tuple[float, float, bool], list[str]]:
    found: dict[tuple[float, float, bool], list[str]] = {}
    for point in points:
        labels = found.setdefault((point.x, point.y, point.marked), [])
        labels += [point.label] if point.label not in labels else []
    return found


def ticks(values: Sequence[float]) -> list[float]:
    """Round numbers around the values, evenly spaced, four to nine of them."""
    span = (max(values) - min(values)) or abs(max(values)) or 1.0
    power = 10.0 ** floor(log10(span / 4))
    step = next(power * factor for factor in (1, 2, 5, 10) if span / (power * factor) <= 6)
    first, last = floor(min(values) / step), -floor(-max(values) / step)
    return [round(i * step, 10) for i in range(first, max(last, first + 1) + 1)]
