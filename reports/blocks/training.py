"""Blocks of training FLOPs, utilisation and parameters: rules, verdicts, and the arithmetic of what is not printed."""

from collections import Counter
from collections.abc import Sequence

from headcount.formulas.conventions import CONVENTIONS
from headcount.formulas.published.verdicts import VERDICTS, Judged
from headcount.reports import document
from headcount.reports.blocks.tables import count_verdicts
from headcount.reports.document import File
from headcount.reports.facts import Facts
from headcount.reports.plots import figures

figures_plot = figures.PLOT
MOST_NAMED = 6
"""The most figures of one verdict and reason that are listed by name."""


def count(facts: Facts) -> int:
    """Return the number of printed figures."""
    return sum(len(cells) for _, cells in facts.figures.values())


def verdicts(facts: Facts) -> str:
    """Return how many figures have each verdict, in words."""
    counts = Counter(cell.verdict for _, cells in facts.figures.values() for cell in cells)
    return ", ".join(f"{counts[verdict]} are {verdict}" for verdict in VERDICTS if counts[verdict])


def summary(facts: Facts) -> str:
    """Return the number of figures by verdict for each table and in total."""
    found = {document.link(name, "training", name): cells for name, (_, cells) in facts.figures.items()}
    return count_verdicts({link: [cell.verdict for cell in cells] for link, cells in found.items()}, "figures")


def tables(facts: Facts) -> str:
    """Return every table of figures: its source and rules, and each figure that its rule does not print."""
    return "\n\n".join(_table(facts, name) for name in facts.figures)


def _table(facts: Facts, name: str) -> str:
    """Return a table's source and rules, and each figure that its rule does not print, with the reason."""
    found, cells = facts.figures[name]
    groups: dict[tuple[str, str], list[Judged]] = {}
    for cell in cells:
        groups.setdefault((cell.verdict, cell.because), []).append(cell)
    lines = [f"- {one.head}: `{one.expression}`{f', work by {one.rule}' * bool(one.rule)}." for one in found.columns]
    rules = dict.fromkeys(one.rule for one in found.columns if one.rule)
    lines += [f"- *{rule}*: {CONVENTIONS[rule].about}" for rule in rules]
    lines += [_group(*key, group) for key, group in groups.items() if key != ("reproduced", "")]
    counts = ", ".join(f"{count} {verdict}" for verdict, count in Counter(cell.verdict for cell in cells).items())
    title = f"{found.title[0].upper()}{found.title[1:]}"
    about = f"{title}. {found.source}, {found.place}. {found.reading} {found.about}".strip()
    fold = "<details><summary>Rules, and each figure that its rule does not print</summary>"
    return "\n".join([f"### {name}", "", about, "", f"Figures: {counts}.", "", fold, "", *lines, "", "</details>"])


def _group(verdict: str, because: str, cells: Sequence[Judged]) -> str:
    """Return the figures of one verdict and reason as a line."""
    named = "; ".join(
        f"{cell.row.name}, {cell.figure.head}: printed {cell.printed}, by the rule {cell.shown}" for cell in cells
    )
    which = named if len(cells) <= MOST_NAMED else f"{len(cells)} figures"
    return f"- **{verdict}**: {which}" + (f" ({because})." if because else ".")


KEYS = ("table", "row", "figure", "printed", "by the rule", "verdict", "because")


def _data(facts: Facts) -> str:
    """Return every printed figure with its verdict, as CSV."""
    rows = [
        (name, cell.row.name, cell.figure.head, cell.printed, cell.shown, cell.verdict, cell.because)
        for name, (_, cells) in facts.figures.items()
        for cell in cells
    ]
    return document.table_as_csv([dict(zip(KEYS, row, strict=True)) for row in rows])


figures_csv = File("training.csv", _data)


def command(facts: Facts) -> str:
    """Return the command that prints the tables."""
    return document.fold(f"python -m bench.macs --table {' '.join(facts.figures)}")
