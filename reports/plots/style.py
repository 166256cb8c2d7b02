"""The look of every plot, light and dark, and helpers for panels and labels."""

from collections.abc import Sequence
from itertools import product
from typing import Any

from headcount.bench.output.figure import drawing

WIDTH = 7.9
"""Inches that a plot is wide, 758 pixels in a browser."""
NARROW = 5.0
"""Inches of a plot whose texts are readable in a paper's column, at two thirds of the size."""
SMALL = 8

BLUE, VERMILLION, GREEN, AMBER, PURPLE, GREY, INK, MUTED, GRID = COLOURS = tuple(f"C{i}" for i in range(9))
"""Colours by their place in a theme's cycle. Each of the first six is readable as text, too."""
MHA, MOA, MOH = BLUE, VERMILLION, GREEN

THEMES = {
    "": ("#ffffff",
         "#0072b2", "#b84d00", "#007a56", "#8f6400", "#a1497c", "#59636e", "#1f2328", "#59636e", "#d8dee4"),
    "-dark": ("#0d1117",
              "#58a6ff", "#ff8f4f", "#3fc08f", "#e3b341", "#e08bc0", "#9198a1", "#e6edf3", "#9198a1", "#30363d"),
}  # fmt: skip
"""The background and COLOURS, by the suffix of the file's name."""


def settings(theme: str) -> dict[str, Any]:
    """Return matplotlib's settings for a theme: text stays text, and equal data gives equal bytes."""
    from matplotlib import cycler

    background, *colours = THEMES[theme]
    *_, ink, muted, grid = colours
    ticks = {"labelcolor": muted, "labelsize": SMALL, "major.size": 0, "minor.size": 0, "major.pad": 6}
    return {
        "svg.fonttype": "none",
        "svg.hashsalt": "headcount",
        # fonts as TrueType, as publishers ask for
        "pdf.fonttype": 42,
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": 9,
        "figure.dpi": 72,
        "figure.facecolor": background,
        "figure.constrained_layout.use": True,
        "figure.constrained_layout.h_pad": 0.08,
        "figure.constrained_layout.w_pad": 0.12,
        "text.color": ink,
        "legend.frameon": False,
        "legend.fontsize": SMALL,
        "axes.facecolor": background,
        "axes.titlecolor": muted,
        "axes.titlelocation": "left",
        "axes.titlesize": SMALL,
        "axes.labelcolor": muted,
        "axes.labelsize": SMALL,
        "axes.edgecolor": grid,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.prop_cycle": cycler(color=colours),
        "grid.color": grid,
        **{f"{axis}tick.{key}": value for axis in "xy" for key, value in ticks.items()},
    }


def panels(title: str, about: str, heights: Sequence[float], width: float = WIDTH):
    """Return a figure with a title, ``about`` in muted lines below it, and its axes one below another.

    ``heights`` are those of the axes with their labels, and ``width`` that of the figure, in inches.
    """
    heading = 0.5 + 0.18 * (about.count("\n") + 1)
    height = heading + sum(heights)
    figure, axes = drawing().subplots(len(heights), squeeze=False, figsize=(width, height), height_ratios=heights)
    figure.get_layout_engine().set(rect=(0, 0, 1, 1 - heading / height))
    figure.text(0.12 / width, 1 - 0.15 / height, title, va="top", fontsize=11, fontweight="bold")
    figure.text(0.12 / width, 1 - 0.42 / height, about, color=MUTED, va="top", linespacing=1.3)
    return figure, list(axes[:, 0])


def remove_heading(figure) -> None:
    """Remove the title of a figure of :func:`panels`, and its place: in a paper the caption says it."""
    _, _, width, share = figure.get_layout_engine().get()["rect"]
    for text in list(figure.texts):
        text.remove()
    figure.get_layout_engine().set(rect=(0, 0, width, 1))
    figure.set_size_inches(figure.get_figwidth(), figure.get_figheight() * share)


def label_rows(axes, places: Sequence[float], names: Sequence[str]) -> None:
    """Name rows from top to bottom, without lines across."""
    axes.set_yticks(places, names, color=INK)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)


def label(axes, at: tuple[float, float], text: str, colour: str, offset=(6, 0), **options: Any):
    """Write a text, ``offset`` points away from the point ``at``."""
    options = {"textcoords": "offset points", "va": "center", "fontsize": SMALL, **options}
    return axes.annotate(text, at, offset, color=colour, **options)


def label_with_line(axes, at: tuple[float, float], text: str, colour: str, place, is_right: bool, **options: Any):
    """Write a text on the right or left of ``place``, and a thin line from it to the point ``at``."""
    ha, side = ("left", 0) if is_right else ("right", 1)
    line = {"arrowstyle": "-", "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3, "relpos": (side, 0.5), "color": colour}
    return label(axes, at, text, colour, place, ha=ha, arrowprops=line, **options)


def label_ends(axes, ends: Sequence[tuple[float, float, str, str]], is_right: bool = True, gap: float = 0.06) -> None:
    """Label the ends of lines ``(x, y, text, colour)`` on the right or left of the axes.

    The labels keep the order of the ends, at least ``gap`` of the axes' height apart.
    """
    axes.autoscale_view()
    to_fractions = axes.transScale + axes.transLimits
    height = -gap
    for x, y, text, colour in sorted(ends, key=lambda end: end[1]):
        height = max(height + gap, to_fractions.transform((x, y))[1])
        place = 1.02 if is_right else -0.02, height
        label_with_line(axes, (x, y), text, colour, place, is_right, textcoords="axes fraction")


def label_points(axes, points: Sequence[tuple[float, float, str, str]]) -> None:
    """Draw points ``(x, y, text, colour)``, each with its text where it covers the fewest texts and points."""
    from matplotlib.transforms import Bbox

    for x, y, _, colour in points:
        axes.plot(x, y, "o", color=colour, markersize=5)
    # computes the layout, and with it the places of points and texts
    axes.figure.draw_without_rendering()
    covered = [Bbox([at - 4, at + 4]) for at in axes.transData.transform([point[:2] for point in points])]
    for x, y, text, colour in points:
        trial = label(axes, (x, y), text, colour, (0, 0))
        own = trial.get_window_extent()
        trial.remove()
        boxes, costs = {}, {}
        for right, up in product((6, -6), (0, 11, -11, 22, -22, 33)):
            # a point is a pixel at 72 dpi
            box = own.translated(right - (own.width if right < 0 else 0), up)
            boxes[right, up] = box
            costs[right, up] = box.count_overlaps(covered) + 4 - axes.bbox.count_contains(box.corners())
        place = min(costs, key=lambda place: (costs[place], abs(place[1])))
        covered.append(boxes[place])
        label_with_line(axes, (x, y), text, colour, place, place[0] > 0)
