"""Printed against rule: how far each row of Tables 1-3 is from what the paper prints."""

from headcount.formulas.published.columns import Row
from headcount.formulas.published.tables import PublishedTable
from headcount.reports.facts import COUNTED, Facts
from headcount.reports.plots.plot import Plot
from headcount.reports.svg import GREEN, GRID, INK, MUTED, ORANGE, VERMILLION, Picture, Scale, ticks

COLOURS = {"reproduced": GREEN, "explained": ORANGE, "no rule": VERMILLION, "unexplained": INK}
HIGH, TOP = 19, 78


def against_rule(facts: Facts) -> Picture:
    """A dot for what the rule gives, a ring for the exact count, in percent of the printed number."""
    found = {
        name: [_row(facts, table, row) for row in table.rows if table.column("macs").printed(row)]
        for name, table in facts.tables.items()
        if table.paper == COUNTED
    }
    rows = sum(map(len, found.values()))
    out = Picture("MACs of Tables 1-3 against what the paper prints", ABOUT, TOP + HIGH * (rows + len(found)) + 52)
    out.head(
        "in % of the printed number: a dot under the table's rule, coloured by its verdict; a ring the exact count"
    )
    off = [value for own in found.values() for _, rule, exact, _ in own for value in (rule, exact)]
    marks = ticks(off)
    x = Scale(marks[0], marks[-1], 236, 640)
    bottom = TOP + HIGH * (rows + len(found))
    for value in marks:
        out.line(x(value), TOP - 6, x(value), bottom, colour=MUTED if value == 0 else GRID)
        out.text(x(value), bottom + 18, f"{value:+g} %" if value else "printed", anchor="middle", colour=MUTED, size=11)
    y = TOP
    for name, own in found.items():
        out.text(16, y + 13, facts.tables[name].place.partition(",")[0], bold=True)
        y += HIGH
        for row, rule, exact, status in own:
            out.text(x.start - 8, y + 13, row, anchor="end", size=11)
            out.dot(x(exact), y + 9, colour=MUTED, radius=4.5, hollow=True, title=f"{row}, exact: {exact:+.2f} %")
            out.dot(x(rule), y + 9, colour=COLOURS[status], title=f"{row}, rule: {rule:+.2f} %")
            out.text(652, y + 13, status, colour=COLOURS[status], size=11)
            y += HIGH
    return out


def _row(facts: Facts, table: PublishedTable, row: Row) -> tuple[str, float, float, str]:
    """The row's name, the percentages under the rule and exact, and its verdict."""
    column, form = table.column("macs"), facts.ledger(row.preset)
    fitting = column.printing.interval(column.printed(row))
    # numbers that are printed so, the one in the middle
    printed = (fitting.start + fitting.stop - 1) / 2
    rule, exact = (100 * (macs / printed - 1) for macs in (form.billed(column.bills), form.macs))
    return row.name, rule, exact, facts.verdicts(table.name)[row.name].status


ABOUT = (
    "Dots along an axis of percent, a row for each model of Tables 1 to 3. Reproduced rows lie on the printed number; "
    "of Table 2 all but the first are printed higher than any count; LightConv and DynamicConv are printed lower."
)
PLOT = Plot("printed.svg", ABOUT, against_rule)
