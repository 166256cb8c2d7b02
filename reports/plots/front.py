"""The models that a budget search finds, beside the one that they match."""

from headcount.reports import papers
from headcount.reports.facts import Facts
from headcount.reports.plots.axes import Axis, panel
from headcount.reports.plots.plot import Plot
from headcount.reports.svg import BLUE, VERMILLION, Picture, Scale, beside, ticks

MATCHED = "transformer-big"
BYTES = (20_000, 50_000, 100_000, 200_000, 500_000)


def front(facts: Facts) -> Picture:
    """Parameters against cache bytes of the matches of ``MATCHED``; the model itself has another colour."""
    rows = [row.values for row in facts.budget(papers.BUDGETS["moa"]).rows]
    length = facts.target_length(MATCHED)
    (own,) = facts.model_accounts([MATCHED], length, ("kv_bytes",)).rows
    form = facts.ledger(MATCHED)
    points = [(row["kv_bytes"], row["params"] / 1e6, f"{row['K']}K{row['E']}E{row['D']}D", BLUE) for row in rows] + [
        (own.values["kv_bytes"], form.params / 1e6, "Transformer big", VERMILLION)
    ]
    out = Picture("As many MACs as Transformer big: parameters against cache", ABOUT, 420)
    out.head(f"MoA models within 2 % of its {form.macs / 1e6:,.0f} M MACs; labels are K, E and D of the attention")
    marks = ticks([y for _, y, _, _ in points])
    x, y = Scale(BYTES[0], 600_000, 64, 730, log=True), Scale(marks[0], marks[-1], 360, 92)
    inside = panel(
        out,
        Axis(x, [(value, f"{value:,}") for value in BYTES], f"cache bytes at the paper's {length} tokens"),
        Axis(y, [(value, f"{value:g}") for value in marks], "parameters, M"),
    )
    for at, level, name, colour in points:
        out.dot(x(at), y(level), colour=colour, title=f"{name}: {level:.1f} M parameters, {at:,} bytes")
    beside(out, [(x(at), y(level), name, colour) for at, level, name, colour in points], inside)
    return out


ABOUT = (
    "Points of parameters over cache bytes. The matched MoA models need several times less cache than Transformer big, "
    "and hold as many parameters or more; wide experts cost cache, many experts cost parameters."
)
PLOT = Plot("front.svg", ABOUT, front)
