"""The clock's ratios with their intervals: the routing tax, and where skipping heads pays."""

from collections.abc import Callable, Sequence
from typing import Any

from headcount.reports import latency
from headcount.reports.facts import Facts
from headcount.reports.plots.plot import Plot
from headcount.reports.svg import (
    BLUE,
    GREEN,
    GRID,
    INK,
    MUTED,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    Picture,
    Scale,
    spread,
    ticks,
)

COLOURS = (BLUE, GREEN, VERMILLION, PURPLE, ORANGE, SKY)
HIGH = 17


def tax(facts: Facts) -> Picture:
    """Each arm of each measured cell, a device below another."""
    out = Picture("Routing tax of mixture of attention heads", ABOUT_TAX, 0)
    out.head("time of a layer over dense multi-query attention of the same K and D, with 95 % intervals; 1 is no tax")
    return _by_device(facts, out, _taxes, _tax_panel)


def skipping(facts: Facts) -> Picture:
    """Each shape's ratio over the share of heads, a device below another."""
    out = Picture("MoH: where skipping heads pays", ABOUT_SKIP, 0)
    out.head("time of `ragged`, which skips, over fused attention of every head, with 95 % intervals; below 1 it pays")
    return _by_device(facts, out, latency.ratios, _skip_panel)


def _by_device(facts: Facts, out: Picture, find: Callable, draw: Callable[..., float]) -> Picture:
    y = 78.0
    for kind in ("cuda", "cpu"):
        found = {device: find(rows) for device, rows in latency.of_type(facts, kind).items()}
        if not any(found.values()):
            out.text(16, y, f"{kind.upper()}: not measured", colour=MUTED, bold=True)
            y += 28
        for device, cells in found.items():
            if cells:
                out.text(16, y, device, bold=True)
                y = draw(out, cells, y + 22)
    out.height = round(y + 4)
    return out


def _taxes(records: Sequence[dict[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """By cell and arm, the tax with its interval."""
    cells: dict[str, dict[str, dict[str, float]]] = {}
    for row in records:
        if row["subject"] == "layer" and row["tax"]:
            cell = f"{row['name'].partition('-')[2]}, T {row['seq_len']:,}, {row['pass']}"
            cells.setdefault(cell, {})[row["implementation_used"] or row["implementation"]] = row["tax"]
    return cells


def _tax_panel(out: Picture, cells: dict[str, dict[str, dict[str, float]]], top: float) -> float:
    arms = list(dict.fromkeys(arm for own in cells.values() for arm in own))
    colours = {arm: COLOURS[number % len(COLOURS)] for number, arm in enumerate(arms)}
    marks = ticks([1, *(one[end] for own in cells.values() for one in own.values() for end in ("low", "high"))])
    x, y = Scale(marks[0], marks[-1], 210, 640), top
    bottom = top + sum(HIGH * len(own) + 8 for own in cells.values())
    for value in marks:
        out.line(x(value), top - 4, x(value), bottom, colour=MUTED if value == 1 else GRID)
        out.text(x(value), bottom + 16, f"{value:g}", anchor="middle", colour=MUTED, size=11)
    for cell, own in cells.items():
        out.text(x.start - 8, y + HIGH * len(own) / 2 + 4, cell, anchor="end", size=11)
        for arm, one in own.items():
            middle = y + HIGH / 2
            out.line(x(one["low"]), middle, x(one["high"]), middle, colour=colours[arm], wide=2)
            out.dot(x(one["value"]), middle, colour=colours[arm], title=f"{cell}, {arm}: {one['value']:.2f}")
            out.text(x(one["high"]) + 8, middle + 4, f"{arm} {one['value']:.2f}", colour=colours[arm], size=11)
            y += HIGH
        y += 8
    return bottom + 40


def _skip_panel(out: Picture, cells: dict[tuple[str, int, str], dict[int, dict[str, float]]], top: float) -> float:
    shares = sorted({share for own in cells.values() for share in own}, reverse=True)
    marks = ticks([1, *(one[end] for own in cells.values() for one in own.values() for end in ("low", "high"))])
    x, y = Scale(shares[0], shares[-1], 72, 520), Scale(marks[0], marks[-1], top + 250, top)
    for value in marks:
        out.line(x.start, y(value), x.end, y(value), colour=INK if value == 1 else GRID)
        out.text(x.start - 16, y(value) + 4, f"{value:g}", anchor="end", colour=MUTED, size=11)
    for share in shares:
        out.text(x(share), y.start + 18, f"{share} %", anchor="middle", colour=MUTED, size=11)
    out.text(
        (x.start + x.end) / 2,
        y.start + 36,
        "heads that a token uses; beside each line where it crosses 1",
        anchor="middle",
        colour=MUTED,
        size=11,
    )
    ends = []
    for number, ((shape, seq_len, which), own) in enumerate(cells.items()):
        # side by side: intervals at one share would hide one another
        colour, aside = COLOURS[number % len(COLOURS)], 4 * (number - (len(cells) - 1) / 2)
        points = [(x(share) + aside, own[share]) for share in shares if share in own]
        out.path([(at, y(one["value"])) for at, one in points], colour=colour)
        for at, one in points:
            out.line(at, y(one["low"]), at, y(one["high"]), colour=colour, wide=2)
            out.dot(at, y(one["value"]), colour=colour, radius=3, title=f"{one['value']:.2f}")
        crossing = latency.crossing({share: one["value"] for share, one in own.items()})
        said = f"{shape.partition('-')[2]}, T {seq_len:,}, {which}: {crossing or 'one share only'}"
        ends.append((points[-1], said, colour))
    places = spread([y(one["value"]) for (_, one), _, _ in ends], 15)
    for ((at, one), said, colour), place in zip(ends, places, strict=True):
        out.line(at + 4, y(one["value"]), x.end + 16, place, colour=colour, wide=0.6)
        out.text(x.end + 20, place + 4, said, colour=colour, size=11)
    return y.start + 60


ABOUT_TAX = (
    "Points with intervals, by layer, length, pass and arm, a device below another; what was not measured says so. On "
    "a CPU the fastest arm of each cell lies near 1, the released loop well above it."
)
ABOUT_SKIP = (
    "Lines of a ratio of times over the share of heads, a device below another; what was not measured says so. On a "
    "CPU they cross 1 where about three quarters of the heads are used."
)
TAX, SKIPPING = Plot("tax.svg", ABOUT_TAX, tax), Plot("break_even.svg", ABOUT_SKIP, skipping)
PLOTS = (TAX, SKIPPING)
