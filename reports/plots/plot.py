"""A plot: a file beside a page, and what it shows in words."""

from collections.abc import Callable
from dataclasses import dataclass

from headcount.reports import markdown
from headcount.reports.facts import Facts
from headcount.reports.svg import Picture


@dataclass(frozen=True)
class Plot:
    """``make`` draws the picture that stands in the file ``name``."""

    name: str
    alternative: str
    make: Callable[[Facts], Picture]

    def text(self, facts: Facts) -> str:
        """The file."""
        return str(self.make(facts))

    def shown(self, facts: Facts) -> str:
        """The picture in a page."""
        return markdown.picture(self.name, self.alternative)
