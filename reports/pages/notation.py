"""The letters and terms of the pages."""

from headcount.formulas.symbols import LEGEND
from headcount.reports import document
from headcount.reports.document import Page, Section
from headcount.reports.facts import Facts


def page(facts: Facts) -> Page:
    """Return the page."""
    return Page(
        "notation",
        "Notation",
        "The field's letters, with the code's words for them.",
        [Section("Terms", [terms]), Section("Letters", [legend])],
    )


def terms(facts: Facts) -> str:
    """Return the terms of the pages with their meanings."""
    meanings = document.texts("notation.terms")
    return document.records([{"term": term, "meaning": meaning} for term, meaning in meanings.items()])


def legend(facts: Facts) -> str:
    """Return every letter with its name in the code and its meaning."""
    return document.records(
        [
            {"letter": f"${one.latex}$", "in the code": f"`{one.word}`" if one.word else "", "meaning": one.meaning}
            for one in LEGEND
        ]
    )
