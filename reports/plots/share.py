"""The MACs of an ideal MoH by the share of heads that a token uses."""

from headcount.reports import papers
from headcount.reports.facts import Facts
from headcount.reports.plots import style
from headcount.reports.plots.plot import Plot

COLOURS = {"LLM": style.BLUE, "LLaMA3": style.VERMILLION, "DiT": style.GREEN, "ViT": style.AMBER}
"""By the first word of a model's name."""
PANELS = (("ideal attention, % of the dense model's", 50), ("ideal model, % of the dense model", 80))
"""What each panel shows, and the lowest percentage."""

Point = tuple[float, float, float]
"""The share of heads, and what attention and the whole model cost then, in percent of the dense model."""


def data(facts: Facts) -> dict[str, list[Point]]:
    """Return a line for each model from all heads to the fewest printed."""
    lines: dict[str, list[Point]] = {}
    for row in papers.models(facts):
        name = row["row"].removeprefix("MoH-")
        # the name without the share at its end
        model = name.removesuffix(" %").rstrip("0123456789").strip() if name.endswith("%") else name
        point = (float(row["activated"]), float(row["attention"]), float(row["whole"]))
        lines.setdefault(model, [(100.0, 100.0, 100.0)]).append(point)
    return {model: sorted(points, reverse=True) for model, points in lines.items()}


def draw(data: dict[str, list[Point]]):
    """Draw a panel for attention and one for the whole model, each with the share of heads as a diagonal."""
    figure, panels = style.panels(
        "What MoH could save, by the share of heads that a token uses",
        "ideal: of a head nothing is computed for a token that does not use it, but its keys and values",
        [3.2, 3.2],
    )
    for number, (axes, (name, lowest)) in enumerate(zip(panels, PANELS, strict=True), 1):
        axes.set_title(name)
        axes.set_xlim(100, 50)
        axes.set_ylim(lowest, 100)
        axes.set_xticks([100, 90, 80, 75, 60, 50], [f"{share} %" for share in (100, 90, 80, 75, 60, 50)])
        axes.plot([100, lowest], [100, lowest], "--", color=style.MUTED, linewidth=1)
        style.label(axes, (lowest + 3, lowest + 3), "the share of the heads", style.MUTED, (-8, 0), ha="right")
        ends = []
        for model, points in data.items():
            colour = COLOURS.get(model.partition("-")[0], style.PURPLE)
            shares, values = [point[0] for point in points], [point[number] for point in points]
            axes.plot(shares, values, "-o", color=colour, markersize=3.5, linewidth=1.4, clip_on=False)
            ends.append((shares[-1], values[-1], f"{model} {values[-1]:.1f}", colour))
        style.label_ends(axes, ends)
    panels[-1].set_xlabel("heads that a token uses")
    return figure


ABOUT = "Lines from all heads to half of them: ideal attention, and even more the whole model, saves less than that."
PLOT = Plot("moh_share", ABOUT, data, draw)
