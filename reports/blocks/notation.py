"""Blocks of the notation."""

from headcount.formulas.symbols import LEGEND
from headcount.reports import document
from headcount.reports.facts import Facts


def letters(facts: Facts) -> str:
    """Return every letter with its name in the code."""
    return document.records(
        [
            {"letter": f"${one.latex}$", "in the code": f"`{one.word}`" if one.word else "", "meaning": one.meaning}
            for one in LEGEND
        ]
    )
