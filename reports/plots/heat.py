"""The heat map of counters: the error in percent of each counter, by formulation of a layer, on CPU and on meta."""

from itertools import product
from typing import Any

from headcount.reports.facts import Facts
from headcount.reports.plots import style
from headcount.reports.plots.plot import Plot

COUNTERS = {"headcount": "headcount", "ptflops-pytorch": "ptflops", "ptflops-aten": "ptflops aten"}
"""How a counter is headed where that is not its name."""


def data(facts: Facts) -> dict[str, Any]:
    """Return the versions, and for each cell formulation, counter, device, and the error in percent.

    The error is None where the call failed.
    """
    cells = [
        [cell.spelling, cell.counter, cell.device, None if cell.error is None else float(cell.error)]
        for cell in facts.audit()
    ]
    return {"versions": facts.audit_versions(), "cells": cells}


def draw(found: dict[str, Any]):
    """Draw the map, one formulation below another; a cell of an exact count is empty."""
    data = found["cells"]
    names, counters, devices = (list(dict.fromkeys(own)) for own in list(zip(*data, strict=True))[:3])
    columns = list(product(counters, devices))
    figure, (axes,) = style.panels(
        "What counters count of the same layer",
        "error in % of the exact count, by formulation of the layer (rows), counter and device (columns)\n"
        f"{found['versions']}",
        [0.17 * len(names) + 0.8],
    )
    for name, counter, device, error in data:
        _draw_cell(axes, columns.index((counter, device)), names.index(name), error)
    axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(-0.5, len(names) - 0.5))
    style.label_rows(axes, range(len(names)), names)
    axes.grid(visible=False)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(columns)), [device for _, device in columns])
    for number, counter in enumerate(counters):
        middle, name = (number + 0.5) * len(devices) - 0.5, COUNTERS.get(counter, counter)
        style.label(axes, (middle, -0.5), name, style.INK, (0, 28), ha="center", fontweight="bold")
    for colour, text in ((style.BLUE, "too few"), (style.VERMILLION, "too many"), (style.GREY, "x: the call fails")):
        axes.barh(0, 0, color=colour, label=text)
    figure.legend(loc="outside lower right", ncols=3)
    return figure


def _draw_cell(axes, x: float, y: float, error: float | None) -> None:
    """Draw a cell with the error as text, darker for a larger error, empty for none; ``x`` for a failure."""
    text, colour, opacity = "x", style.GREY, 1.0
    if error is not None:
        size = abs(error)
        digits = 3 if size < 0.05 else 0 if size >= 9.95 else 1
        text = f"{error:+.{digits}f}".replace("-", "\N{MINUS SIGN}") if size else ""
        colour = style.VERMILLION if error > 0 else style.BLUE
        opacity = min(1.0, 0.1 + 0.16 * size**0.5) if size else 0.0
    axes.barh(y, 0.96, 0.88, x - 0.48, facecolor=(colour, opacity), edgecolor=style.GRID, linewidth=0.6)
    ink = axes.get_facecolor() if opacity > 0.7 else style.INK
    style.label(axes, (x, y), text, ink, (0, 0), ha="center", fontsize=7)


ABOUT = "A table of colours: only headcount's column is empty, which means exact, for every formulation it supports."
PLOT = Plot("counters", ABOUT, data, draw)
