"""The heat map of counters: the error in percent of each counter, by formulation of a layer, on CPU and on meta."""

from typing import Any

from headcount.reports import audit
from headcount.reports.facts import Facts
from headcount.reports.heat_map import Cell
from headcount.reports.plots import style
from headcount.reports.plots.plot import Plot

FAMILIES = {"mha": "multi-head attention", "moa": "mixture of attention heads", "vocabulary": "vocabulary projection"}
COUNTERS = {"headcount": "headcount", "ptflops-pytorch": "ptflops", "ptflops-aten": "ptflops aten"}
"""How a counter is headed where that is not its name."""
STEPS = ((30, 1.0), (10, 0.6), (3, 0.4), (1, 0.25), (0, 0.12))
"""From an error of so many percent on, this opacity."""


def data(facts: Facts) -> dict[str, Any]:
    """Return the formulations by family, and by counter and device the error of each: None where it failed."""
    families: dict[str, dict[str, str]] = {}
    columns: dict[str, dict[str, dict[str, list[Any]]]] = {}
    for cell in audit.found(facts):
        families.setdefault(cell.spelling.partition("-")[0], {})[cell.spelling] = cell.written
        own = columns.setdefault(cell.counter, {}).setdefault(cell.device, {})
        own[cell.spelling] = [None if cell.error is None else float(cell.error), error(cell)]
    return {"families": families, "columns": columns}


def error(cell: Cell) -> str:
    """Return the text of a cell: the error in percent, nothing where it is exact, ``x`` where the call failed."""
    if cell.error is None:
        return "x"
    size = abs(float(cell.error))
    digits = 3 if size < 0.05 else 0 if size >= 9.95 else 1
    return f"{float(cell.error):+.{digits}f}".replace("-", "\N{MINUS SIGN}") if size else ""


def draw(data: dict[str, Any]):
    """Draw the map, a family of formulations below another; a cell of an exact count is empty."""
    from matplotlib.patches import Patch

    names: list[str] = []
    places = {}
    for family, own in data["families"].items():
        names.append(FAMILIES.get(family, family))
        places |= {formulation: len(names) + i for i, formulation in enumerate(own)}
        names += own.values()
    columns = [(counter, device) for counter, devices in data["columns"].items() for device in devices]
    figure, (axes,) = style.panels(
        "What counters count of the same layer",
        "error in % of the exact count, by formulation of the layer (rows), counter and device (columns)",
        [0.17 * len(names) + 0.8],
    )
    for x, (counter, device) in enumerate(columns):
        for formulation, (value, text) in data["columns"][counter][device].items():
            _cell(axes, x, places[formulation], value, text)
    axes.set(xlim=(0, len(columns)), ylim=(-0.4, len(names) - 0.4))
    style.rows(axes, range(len(names)), names)
    for name in axes.get_yticklabels():
        name.set_fontweight("bold" if name.get_text() in FAMILIES.values() else "normal")
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)
    axes.xaxis.tick_top()
    axes.set_xticks([x + 0.5 for x in range(len(columns))], [device for _, device in columns])
    for counter, devices in data["columns"].items():
        middle = columns.index((counter, next(iter(devices)))) + len(devices) / 2
        name = COUNTERS.get(counter, counter)
        style.label(axes, (middle, 0), name, style.INK, (0, 28), ha="center", fontweight="bold")
    words = {style.BLUE: "too few", style.VERMILLION: "too many", style.GREY: "x: the call fails"}
    patches = [Patch(color=colour, label=text) for colour, text in words.items()]
    figure.legend(handles=patches, loc="outside lower right", ncols=3)
    return figure


def _cell(axes, x: float, y: float, value: float | None, text: str) -> None:
    from matplotlib import rcParams
    from matplotlib.colors import to_rgba

    opacity = 1 if value is None else next(opacity for least, opacity in STEPS if abs(value) >= least)
    colour = style.GREY if value is None else style.VERMILLION if value > 0 else style.BLUE
    fill = to_rgba(colour, opacity) if text else "none"
    axes.barh(y, 0.96, 0.88, x + 0.02, facecolor=fill, edgecolor=style.GRID, linewidth=0.6)
    if text:
        ink = rcParams["figure.facecolor"] if opacity == 1 else style.INK
        style.label(axes, (x + 0.5, y), text, ink, (0, 0), ha="center", fontsize=7)


ABOUT = (
    "A table of colours: formulations of an attention layer, by counter and device. ptflops' default backend is off in "
    "most rows, most of all on meta; fused attention and grouped products are missed by several counters; headcount's "
    "column is empty, which means exact."
)
PLOT = Plot("counters", ABOUT, data, draw)
