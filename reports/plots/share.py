"""The MACs of an ideal MoH by the share of heads that a token uses."""

from headcount.reports import papers
from headcount.reports.facts import Facts
from headcount.reports.plots import style
from headcount.reports.plots.plot import Plot

COLUMNS = (("heads used", style.MUTED, "|"), ("attention", style.VERMILLION, "o"), ("whole model", style.BLUE, "s"))
"""What a point holds, with the colour and the marker of each."""
LOWEST = 45
"""The left end of the axis in percent."""

Point = tuple[float, float, float]
"""The share of heads, and what attention and the whole model cost then, in percent of the dense model."""


def data(facts: Facts) -> dict[str, list[Point]]:
    """Return the points of each model from all heads to the fewest printed."""
    lines: dict[str, list[Point]] = {}
    for row in papers.models(facts):
        name = row["row"].removeprefix("MoH-")
        # the name without the share at its end
        model = name.removesuffix(" %").rstrip("0123456789").strip() if name.endswith("%") else name
        point = (float(row["activated"]), float(row["attention"]), float(row["whole"]))
        lines.setdefault(model, [(100.0, 100.0, 100.0)]).append(point)
    return {model: sorted(points, reverse=True) for model, points in lines.items()}


def draw(data: dict[str, list[Point]]):
    """Draw a row for each model and share: its heads, its attention and the whole model."""
    models = {name: sorted(point for point in points if point[0] < 100) for name, points in data.items()}
    places, names, y = [], [], 0.0
    height = 0.19 * (sum(map(len, models.values())) + 0.5 * len(models)) + 0.75
    figure, (axes,) = style.panels(
        "What MoH could save at most",
        "MACs in % of the dense model, if a head that a token does not\n"
        "use computed nothing for it but its keys and values",
        [height],
        width=style.NARROW,
    )
    for model, points in models.items():
        for number, point in enumerate(points):
            _draw_row(axes, y, point, is_first=not places)
            places.append(y)
            names.append(model if not number else "")
            y += 1
        y += 0.5
    axes.set_xlim(LOWEST, 104)
    axes.set_ylim(-1.4, y - 0.5)
    axes.set_xticks(range(50, 101, 10), [f"{share} %" for share in range(50, 101, 10)])
    axes.axvline(100, color=style.MUTED, linewidth=1)
    style.label_rows(axes, places, names)
    return figure


def _draw_row(axes, y: float, point: Point, is_first: bool) -> None:
    """Draw the marks of a row with their numbers, and above the first row what each mark is."""
    axes.hlines(y, point[0], 100, color=style.GRID, linewidth=2)
    for value, (name, colour, marker) in zip(point, COLUMNS, strict=True):
        axes.plot(value, y, marker, color=colour, markersize=9 if marker == "|" else 5, markeredgewidth=1.6)
        if is_first:
            style.label(axes, (value, y), name, colour, (0, 15), ha="center")
    behind = {"facecolor": axes.get_facecolor(), "edgecolor": "none", "pad": 0.6}
    for value, (_, colour, marker), side in zip(point, COLUMNS, (-1, -1, 1), strict=True):
        away, ha = 5 if marker == "|" else 7, "left" if side > 0 else "right"
        style.label(axes, (value, y), f"{value:.0f}", colour, (side * away, 0), ha=ha, bbox=behind)


ABOUT = "A row for each model: ideal attention costs more than the share of heads used, the whole model more than both."
PLOT = Plot("moh_share", ABOUT, data, draw)
