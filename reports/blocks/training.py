"""Blocks of training FLOPs, utilisation and parameters: rules, verdicts, and the arithmetic of what is not printed."""

from collections import Counter
from collections.abc import Sequence

from headcount.bench.column import DASH
from headcount.bench.hardware import HARDWARE, SOURCES
from headcount.formulas.conventions import CONVENTIONS
from headcount.formulas.published.verdicts import Judged
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


def _place(address: str) -> str:
    """Return an address as a link, and a file of the repository by its path."""
    return f"<{address}>" if address.startswith("https://") else f"`{address}`"


def peaks(facts: Facts) -> str:
    """Return the peak rates of the cards that ``--peak`` names, and where each was read."""
    rows = [
        {
            "card": one.name,
            "TFLOP/s": ", ".join(f"{dtype} {rate:g}" for dtype, rate in one.tflops.items()),
            "GB/s": f"{one.bytes_per_s / 1e9:g}",
            "memory, GB": DASH if one.memory_bytes is None else f"{one.memory_bytes / 1e9:.6g}",
            "read in": "; ".join(f"{key}: {', '.join(map(_figure, figures))}" for key, figures in one.read.items()),
        }
        for one in HARDWARE.values()
    ]
    places = [f"- *{key}*: {_place(one['address'])} ({one['read']})." for key, one in SOURCES.items()]
    return "\n".join([document.records(rows), "", *places])


def _figure(field: str) -> str:
    """Return the words of a field of a data sheet, a dtype itself."""
    return FIGURES.get(field, field)


FIGURES = {
    "bytes_per_s": "GB/s",
    "memory_bytes": "memory",
    "link_bytes_per_s": "link",
    "node_cards": "cards of a node",
    "bridge_bytes_per_s": "bridge",
}
"""Words of the fields of a data sheet."""

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
