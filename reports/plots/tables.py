"""MACs of each row of Tables 1-3, under the table's rule and exact, against the printed number."""

from headcount.formulas.published.figures import Row
from headcount.formulas.published.tables import PublishedTable
from headcount.reports.facts import COUNTED, Facts
from headcount.reports.plots import style
from headcount.reports.plots.figures import COLOURS
from headcount.reports.plots.plot import Plot

Entry = tuple[str, float, float, str]
"""A row's name, its MACs under the rule and exact in percent off the printed number, and its verdict."""


def data(facts: Facts) -> dict[str, list[Entry]]:
    """Return the rows that print MACs, by table."""
    return {
        table.place.partition(",")[0]: [_entry(facts, table, row) for row in table.rows if "macs" in row.printed]
        for table in facts.tables.values()
        if table.paper == COUNTED
    }


def _entry(facts: Facts, table: PublishedTable, row: Row) -> Entry:
    column, ledger = table.column("macs"), facts.ledger(row.preset)
    fitting = column.interval(row.printed["macs"])
    # the middle of the integers that are printed so
    printed = int(fitting.low + fitting.high - 1) / 2
    rule, exact = (100 * (macs / printed - 1) for macs in (ledger.total_under(column.multiplicity), ledger.macs))
    return row.name, rule, exact, facts.verdicts(table.name)[row.name][0]


def draw(data: dict[str, list[Entry]]):
    """Draw a dot for what the rule gives and a ring for the exact count, a panel for each table."""
    figure, panels = style.panels(
        "MACs of Tables 1-3 against what the paper prints",
        "in % of the printed number: a dot under the table's rule, coloured by its verdict; a ring for the exact count",
        [0.2 * (len(entries) + 2) for entries in data.values()],
    )
    for axes, (place, entries) in zip(panels, data.items(), strict=True):
        axes.set_title(place, color=style.INK, fontweight="bold")
        axes.axvline(0, color=style.MUTED, linewidth=1)
        axes.set_xlim(-20, 20)
        axes.set_xticks(range(-20, 21, 10), ["\N{MINUS SIGN}20 %", "\N{MINUS SIGN}10 %", "printed", "+10 %", "+20 %"])
        axes.tick_params(labelbottom=axes is panels[-1])
        for y, (_, rule, exact, status) in enumerate(entries):
            axes.plot(exact, y, "o", markersize=7, markerfacecolor="none", markeredgecolor=style.MUTED)
            axes.plot(rule, y, "o", markersize=4.5, color=COLOURS[status])
            style.label(axes, (1, y), status, COLOURS[status], xycoords=("axes fraction", "data"))
        axes.set_ylim(-0.6, len(entries) - 0.4)
        style.label_rows(axes, range(len(entries)), [name for name, *_ in entries])
    return figure


ABOUT = "Dots in percent off the printed MACs, a row for each model of Tables 1 to 3: reproduced rows lie at 0."
PLOT = Plot("printed", ABOUT, data, draw)
