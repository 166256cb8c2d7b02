"""The look of every plot of the report, in light and dark, and the helpers that draw and label in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from headcount.bench.env import drawing

WIDTH = 7.9
"""Inches that a plot is wide, 758 pixels in a browser."""
TOP, LINE = 0.42, 0.19
"""Inches of the title, and of each line below it."""
SMALL = 8

BLUE, VERMILLION, GREEN, AMBER, PURPLE, GREY, INK, MUTED, GRID = COLOURS = tuple(f"C{i}" for i in range(9))
"""Colours by their place in a theme's cycle. Each of the first six is readable as text, too."""
MHA, MOA, MOH = BLUE, VERMILLION, GREEN


@dataclass(frozen=True)
class Theme:
    """The end of a file's name, the background, and the colours in the order of COLOURS."""

    suffix: str
    background: str
    cycle: Sequence[str]

    def settings(self) -> dict[str, Any]:
        """Return matplotlib's settings: text stays text, and equal data gives equal bytes."""
        from matplotlib import cycler

        *_, ink, muted, grid = self.cycle
        ticks = {"labelcolor": muted, "labelsize": SMALL, "major.size": 0, "minor.size": 0, "major.pad": 6}
        return {
            "svg.fonttype": "none",
            "svg.hashsalt": "headcount",
            "font.sans-serif": ["DejaVu Sans"],
            "font.size": 9,
            "figure.dpi": 72,
            "figure.facecolor": self.background,
            "axes.facecolor": self.background,
            "text.color": ink,
            "axes.labelcolor": muted,
            "axes.labelsize": SMALL,
            "axes.edgecolor": grid,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.axisbelow": True,
            "axes.prop_cycle": cycler(color=self.cycle),
            "grid.color": grid,
            **{f"{axis}tick.{key}": value for axis in "xy" for key, value in ticks.items()},
        }


LIGHT = Theme("", "#ffffff", (
    "#0072b2", "#b84d00", "#007a56", "#8f6400", "#a1497c", "#59636e", "#1f2328", "#59636e", "#d8dee4",
))  # fmt: skip
DARK = Theme("-dark", "#0d1117", (
    "#58a6ff", "#ff8f4f", "#3fc08f", "#e3b341", "#e08bc0", "#9198a1", "#e6edf3", "#9198a1", "#30363d",
))  # fmt: skip
THEMES = (LIGHT, DARK)


def panels(
    title: str, about: str, heights: Sequence[float], *, left: float = 0.6, right: float = 0.25,
    bottom: float = 0.5, gap: float = 0.7, above: float = 0.25,
):  # fmt: skip
    """Return a figure with a title, ``about`` in muted lines below it, and its axes one below another.

    ``heights`` of the axes, the margins, the ``gap`` between axes and what is ``above`` the first one are in inches.
    """
    top = TOP + LINE * (about.count("\n") + 1) + above
    height = top + sum(heights) + gap * (len(heights) - 1) + bottom
    figure, axes = drawing().subplots(
        len(heights), squeeze=False, figsize=(WIDTH, height), height_ratios=list(heights),
        gridspec_kw={
            "left": left / WIDTH, "right": 1 - right / WIDTH, "bottom": bottom / height, "top": 1 - top / height,
            "hspace": gap * len(heights) / sum(heights),
        },
    )  # fmt: skip
    figure.text(0.12 / WIDTH, 1 - 0.3 / height, title, fontsize=11, fontweight="bold")
    figure.text(0.12 / WIDTH, 1 - TOP / height, about, color=MUTED, va="top", linespacing=1.3)
    return figure, list(axes[:, 0])


def head(axes, text: str, **options: Any) -> None:
    """Name a panel, or its vertical axis, above its top left corner."""
    axes.set_title(text, loc="left", fontsize=SMALL, **{"color": MUTED, **options})


def rows(axes, places: Sequence[float], names: Sequence[str]) -> None:
    """Name rows from top to bottom, without lines across."""
    axes.set_yticks(places, names, color=INK)
    axes.set_ylim(axes.get_ylim()[::-1])
    axes.grid(axis="y", visible=False)


def label(axes, at: tuple[float, float], text: str, colour: str, offset=(6, 0), **options: Any):
    """Write a text, ``offset`` points away from the point ``at``."""
    options = {"va": "center", "fontsize": SMALL, **options}
    return axes.annotate(text, at, offset, textcoords="offset points", color=colour, **options)


def label_ends(axes, ends: Sequence[tuple[float, float, str, str]], side: str = "right") -> None:
    """Label the ends of lines ``(x, y, text, colour)`` at a side of the axes, in their order and apart."""
    axes.autoscale_view()
    edge, anchor = (axes.bbox.x1 + 10, 0) if side == "right" else (axes.bbox.x0 - 10, 1)
    line = {"arrowstyle": "-", "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3, "relpos": (anchor, 0.5)}
    at = [axes.transData.transform(end[:2]) for end in ends]
    for (x, y, text, colour), (across, up), place in zip(ends, at, spread([up for _, up in at], 11), strict=True):
        offset, line["color"] = (edge - across, place - up), colour
        label(axes, (x, y), text, colour, offset, ha=("left", "right")[anchor], arrowprops=line)


def spread(wanted: Sequence[float], gap: float) -> list[float]:
    """Return places at least ``gap`` apart in the order of ``wanted`` and near them: neighbours are pushed apart."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    places = list(wanted)
    for _ in range(100):
        for below, above in zip(order, order[1:], strict=False):
            push = max(0.0, gap - (places[above] - places[below])) / 2
            places[below], places[above] = places[below] - push, places[above] + push
    return places


def dots(axes, points: Sequence[tuple[float, float, str, str]]) -> None:
    """Draw points ``(x, y, text, colour)``, and each text where it meets no other, no point and no edge of the axes."""
    for x, y, _, colour in points:
        axes.plot(x, y, "o", color=colour, markersize=5)
    axes.autoscale_view()
    at = [axes.transData.transform(point[:2]) for point in points]
    taken = [(x - 4, y - 4, x + 4, y + 4) for x, y in at]
    for (x, y, text, colour), (across, up) in zip(points, at, strict=True):
        drawn = label(axes, (x, y), text, colour, va="bottom")
        size = drawn.get_window_extent(axes.figure.canvas.get_renderer()).size
        tried = []
        for reach, dx, dy in product((0, 9, 18, 27), (6, -6 - size[0], -size[0] / 2), (0, 1, -1)):
            offset = dx, dy * (size[1] / 2 + 6 + reach) - size[1] / 2
            low = across + offset[0], up + offset[1]
            box = (*low, low[0] + size[0], low[1] + size[1])
            covered = sum(_overlap(box, other) for other in taken) - _overlap(box, axes.bbox.extents)
            tried.append((round(covered, 3), reach, offset, box))
        *_, offset, box = min(tried, key=lambda one: one[:2])
        drawn.set_position(offset)
        taken.append(box)


def _overlap(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the area that two boxes ``(left, bottom, right, top)`` share."""
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    return max(0.0, wide) * max(0.0, high)
