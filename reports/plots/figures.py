"""Printed figures of training against what their rules give, in units of the last printed digit."""

from headcount.formulas.published.verdicts import VERDICTS
from headcount.reports.facts import Facts
from headcount.reports.plots import style
from headcount.reports.plots.plot import Plot

COLOURS = dict(
    zip(VERDICTS, (style.GREEN, style.AMBER, style.BLUE, style.VERMILLION, style.INK, style.MUTED), strict=True)
)


def data(facts: Facts) -> dict[str, list[tuple[str, float]]]:
    """Return each figure's verdict and distance from what is printed, by table; formulas have no last digit."""
    return {
        name: [(cell.verdict, float(cell.last_digits)) for cell in cells if not cell.figure.formula]
        for name, (_, cells) in facts.figures.items()
        if not all(cell.figure.formula for cell in cells)
    }


def draw(data: dict[str, list[tuple[str, float]]]):
    """Draw a dot for each figure, a row for each table; the figures that print so lie in the middle."""
    figure, (axes,) = style.panels(
        "Printed figures of training against what their rules give",
        "value by the rule minus the printed number, in units of its last digit; the rule prints it from -0.5 to 0.5",
        [0.22 * (len(data) + 3)],
    )
    axes.set_xscale("symlog", linthresh=1, linscale=1.5)
    axes.axvspan(-0.5, 0.5, color=style.GRID, alpha=0.6, linewidth=0)
    most = 2 * max(abs(off) for cells in data.values() for _, off in cells)
    ticks = [sign * 10**power for sign in (-1, 1) for power in range(5) if 10**power < most]
    axes.set_xlim(-most, most)
    axes.set_xticks([0, *ticks], ["printed", *(f"{tick:+,}" for tick in ticks)])
    axes.minorticks_off()
    for verdict, colour in COLOURS.items():
        points = [(off, y) for y, cells in enumerate(data.values()) for own, off in cells if own == verdict]
        if points:
            axes.plot(*zip(*points, strict=True), "o", markersize=4, color=colour, alpha=0.7, label=verdict)
    axes.set_ylim(-0.7, len(data) - 0.3)
    style.label_rows(axes, range(len(data)), list(data))
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.07), ncols=len(COLOURS))
    return figure


ABOUT = "Dots for printed figures, a row for each table, by how far their rule is off in units of the last digit."
PLOT = Plot("training", ABOUT, data, draw)
