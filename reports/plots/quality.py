"""Cost against quality: BLEU En-De of Tables 1 and 3 and perplexity of Table 2, over MACs and over parameters."""

from headcount.reports import papers
from headcount.reports.facts import Facts
from headcount.reports.plots.axes import Axis, panel
from headcount.reports.plots.plot import Plot
from headcount.reports.svg import BLUE, VERMILLION, Picture, Scale, beside, ticks

SCALES = {"macs": "MACs, exact (M)", "params": "parameters (M)"}
HIGH, BETWEEN, TOP = 245, 70, 106


def against_quality(facts: Facts) -> Picture:
    """A panel for each measure and cost, one below another."""
    found = papers.rated(facts)
    panels = [(measure, cost) for measure in ("BLEU En-De", "PPL") for cost in SCALES]
    out = Picture("Cost against the papers' quality", ABOUT, TOP + len(panels) * (HIGH + BETWEEN) - 16)
    out.head("cheaper and better: up and left for BLEU, down and left for perplexity (PPL)")
    for number, (said, colour) in enumerate((("mixture of attention heads", VERMILLION), ("others", BLUE))):
        out.dot(22 + 200 * number, 66, colour=colour)
        out.text(32 + 200 * number, 70, said, colour=colour)
    for number, (measure, cost) in enumerate(panels):
        rows = [one for one in found if measure in one.quality]
        _panel(out, measure, cost, rows, TOP + number * (HIGH + BETWEEN))
    return out


def _panel(out: Picture, measure: str, cost: str, rows: list[papers.Rated], top: float) -> None:
    points: dict[tuple[float, float, bool], dict[str, None]] = {}
    for one in rows:
        place = (getattr(one, cost) / 1e6, float(one.quality[measure]), one.routed)
        points.setdefault(place, {})[_short(one.row)] = None
    x_marks, y_marks = (ticks([place[axis] for place in points]) for axis in (0, 1))
    x, y = Scale(x_marks[0], x_marks[-1], 56, 736), Scale(y_marks[0], y_marks[-1], top + HIGH, top)
    inside = panel(
        out,
        Axis(x, [(value, f"{value:,g}") for value in x_marks], SCALES[cost]),
        Axis(y, [(value, f"{value:g}") for value in y_marks], measure),
    )
    labels = []
    for (across, level, routed), names in points.items():
        colour = VERMILLION if routed else BLUE
        out.dot(x(across), y(level), colour=colour, title=f"{', '.join(names)}: {level:g} {measure}, {across:,.1f} M")
        labels.append((x(across), y(level), ", ".join(names), colour))
    beside(out, labels, inside)


def _short(row: str) -> str:
    """A row without its reference, and without the words that its colour says."""
    return row.partition(" (")[0].removeprefix("MoA ").replace(":", "")


ABOUT = "BLEU of Tables 1 and 3 and perplexity of Table 2 over MACs and over parameters, a point for each printed row."
PLOT = Plot("cost_against_quality.svg", ABOUT, against_quality)
