"""Blocks of the tables that libraries print of their models: shares by rule, exceptions, deviations from MACs."""

import re

from headcount.bench.column import plural
from headcount.bench.macs import published
from headcount.bench.macs.published import Share
from headcount.formulas.published.verdicts import Judged
from headcount.reports import document
from headcount.reports.blocks.tables import count_verdicts
from headcount.reports.facts import Facts

MOST = 10
"""The most models that are listed at each end of the deviations."""


def count(facts: Facts) -> str:
    """Return the number of printed figures."""
    return f"{sum(len(cells) for _, cells in facts.libraries.values()):,}"


def reproduced(facts: Facts) -> str:
    """Return how many figures a rule gives."""
    return f"{sum(share.reproduced for share in _shares(facts)):,}"


def sources(facts: Facts) -> str:
    """Return the source of each table and the versions that counted its models."""
    return "\n".join(
        f"- *{name}*: {table.source}, {table.place}. {table.reading} {table.about} Counted with {table.counted_with}."
        for name, (table, _) in facts.libraries.items()
    )


def letters(facts: Facts) -> str:
    """Return the letters of the rules."""
    return published.LETTERS_ABOUT


def verdicts(facts: Facts) -> str:
    """Return the number of figures by verdict for each column of each table and in total."""
    found = {
        f"{name}, {one.head}": [cell.verdict for cell in cells if cell.figure.name == one.name]
        for name, (table, cells) in facts.libraries.items()
        for one in table.columns
    }
    return count_verdicts(found, "figures")


def rules(facts: Facts) -> str:
    """Return the rule of each column, and how many of its figures it prints."""
    rows = [
        {
            "column": f"{one.table}, {one.figure.head}",
            "rule": f"`{one.figure.expression}`",
            "printed by it": f"{one.reproduced:,} of {one.printed:,}",
            "share, %": f"{100 * one.reproduced / one.printed:.1f}",
        }
        for one in _shares(facts)
    ]
    return document.records(rows, dict.fromkeys([*rows[0]][2:], {"align": "right"}))


def deviations(facts: Facts) -> str:
    """Return the median distance of a column from MACs, and the models that are farthest below and above them."""
    lines = []
    for one in _shares(facts):
        if one.deviations:
            ordered = sorted(one.deviations.items(), key=lambda pair: pair[1])
            below, above = (
                ", ".join(f"{row} {float(off):+.2f} %" for row, off in those)
                for those in (ordered[:MOST], ordered[: -MOST - 1 : -1])
            )
            middle = float(ordered[len(ordered) // 2][1])
            lines.append(f"{one.table}, {one.figure.head}: median {middle:+.2f} %; least {below}; most {above}.")
    return "\n\n".join(lines)


def exceptions(facts: Facts) -> str:
    """Return the figures that their rule does not print, by reason."""
    parts = []
    for name, (_, cells) in facts.libraries.items():
        groups: dict[tuple[str, str], list[Judged]] = {}
        for cell in cells:
            if cell.verdict != "reproduced":
                groups.setdefault((cell.verdict, reason(cell)), []).append(cell)
        lines = [f"- **{verdict}**, {why}: {_list(group)}." for (verdict, why), group in sorted(groups.items())]
        parts.append("\n".join([f"### {name}", "", *(lines or ["None."])]))
    return "\n\n".join(parts)


def reason(cell: Judged) -> str:
    """Return why a rule does not print a figure, without its numbers, so that figures of one reason are one group."""
    explain = cell.row.explain.get(cell.figure.name)
    if cell.verdict == "explained" and explain and explain["because"] in cell.because:
        return re.sub(r": -?\d+", "", explain["because"])
    return "cut off where the column rounds" if cell.verdict == "explained" else "no reason found"


def _list(group: list[Judged]) -> str:
    rows = dict.fromkeys(cell.row.name for cell in group)
    return f"{plural(len(group), 'figure')} of {plural(len(rows), 'model')} ({', '.join(rows)})"


def _shares(facts: Facts) -> list[Share]:
    return [one for table, cells in facts.libraries.values() for one in published.shares(table, cells)]


def command(facts: Facts) -> str:
    """Return the command that prints the tables."""
    return f"headcount table {' '.join(facts.libraries)}"
