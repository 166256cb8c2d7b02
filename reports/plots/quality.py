"""BLEU En-De of Tables 1 and 3 and perplexity of Table 2, over MACs and over parameters."""

from headcount.reports import papers
from headcount.reports.facts import Facts
from headcount.reports.plots import style
from headcount.reports.plots.plot import Plot

SCALES = {"macs": "MACs, exact, millions", "params": "parameters, millions"}
MEASURES = ("BLEU En-De", "PPL")
COLOURS = {True: style.MOA, False: style.MHA}
"""By whether the attention is a mixture of attention heads."""


def data(facts: Facts) -> list[dict]:
    """Return the points of each measure over each cost: rows at one place are one point with all their names."""
    found = papers.rated(facts)
    panels = []
    for measure in MEASURES:
        for cost in SCALES:
            points: dict[tuple[float, float, bool], list[str]] = {}
            for one in found:
                if measure in one["quality"]:
                    at, name = (one[cost], float(one["quality"][measure]), one["routed"]), _short(one["row"])
                    names = points.setdefault(at, [])
                    names += [name] * (name not in names)
            panels.append({"measure": measure, "cost": cost, "points": [[*at, names] for at, names in points.items()]})
    return panels


def _short(row: str) -> str:
    """Return a row's name without its reference, and without the words that its colour says."""
    return row.partition(" (")[0].removeprefix("MoA ").replace(":", "")


def draw(data: list[dict]):
    """Draw a panel for each measure and cost."""
    figure, panels = style.panels(
        "Cost against the papers' quality",
        "cheaper and better: up and left for BLEU, down and left for perplexity (PPL)",
        [3.1] * len(data),
    )
    for axes, panel in zip(panels, data, strict=True):
        axes.set(xmargin=0.1, ymargin=0.12, xlabel=SCALES[panel["cost"]])
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set_title(panel["measure"])
        style.label_points(axes, [(x / 1e6, y, ", ".join(names), COLOURS[moa]) for x, y, moa, names in panel["points"]])
    for name, colour in (("mixture of attention heads", style.MOA), ("others", style.MHA)):
        panels[0].plot([], [], "o", color=colour, markersize=5, label=name)
    figure.legend(loc="upper right")
    return figure


ABOUT = "BLEU of Tables 1 and 3 and perplexity of Table 2 over MACs and over parameters, a point for each row."
PLOT = Plot("cost_against_quality", ABOUT, data, draw)
