"""Pages of the report: each module defines ``page(facts)``, which returns the page of these measurements."""

from importlib import import_module

from headcount.reports.document import Page
from headcount.reports.facts import Facts

PAGE_MODULES = (
    *("index", "moa", "moh", "training", "parallel", "claims", "choose", "time", "counters", "notation", "method"),
    *("commands", "examples", "examples_own"),
)
"""Page modules in the order of the list of pages."""


def load(facts: Facts) -> dict[str, Page]:
    """Return every page by name, in the order of PAGE_MODULES."""
    pages = [import_module(f"{__name__}.{name}").page(facts) for name in PAGE_MODULES]
    return {page.name: page for page in pages}
