"""The pages of the report: one module each, whose function ``page(facts)`` returns the page."""

from importlib import import_module

from headcount.reports.document import Page
from headcount.reports.facts import Facts

MODULES = (
    *("index", "moa", "moh", "claims", "choose", "time", "counters", "notation", "method", "commands"),
    *("examples", "examples_own"),
)
"""The modules of the pages, in the order in which the pages are listed."""


def load(facts: Facts) -> dict[str, Page]:
    """Return every page by name, in the order of MODULES."""
    pages = [import_module(f"{__name__}.{name}").page(facts) for name in MODULES]
    return {page.name: page for page in pages}
