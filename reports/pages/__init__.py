"""The pages of the report, one module each: ``ORDER`` is the page's place, ``page(facts)`` makes it."""

from importlib import import_module
from pkgutil import iter_modules

from headcount.reports.document import Page
from headcount.reports.facts import Facts


def load(facts: Facts) -> dict[str, Page]:
    """Return every page by name, in the order in which the pages are listed."""
    modules = [import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__)]
    pages = [module.page(facts) for module in sorted(modules, key=lambda module: module.ORDER)]
    return {page.name: page for page in pages}
