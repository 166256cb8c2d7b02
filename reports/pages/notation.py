"""The letters and terms of the pages."""

from headcount.formulas.symbols import LEGEND
from headcount.reports import document
from headcount.reports.document import Page, Section
from headcount.reports.facts import Facts


def page(facts: Facts) -> Page:
    """Return the page: the terms with their meanings, and every letter with its name in the code."""
    terms = [{"term": term, "meaning": meaning} for term, meaning in document.texts("notation.terms").items()]
    letters = [
        {"letter": f"${one.latex}$", "in the code": f"`{one.word}`" if one.word else "", "meaning": one.meaning}
        for one in LEGEND
    ]
    about = "The field's letters, with the code's words for them."
    sections = [Section("Terms", [document.records(terms)]), Section("Letters", [document.records(letters)])]
    return Page("notation", "Notation", about, sections)
