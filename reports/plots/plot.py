"""A plot: a file beside a page, and what it shows in words."""

from collections.abc import Callable
from dataclasses import dataclass

from headcount.reports import document
from headcount.reports.document import Maker
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
        return document.picture(self.name, self.alternative)


def files(*plots: Plot) -> dict[str, Maker]:
    """The makers of plots by the names of their files."""
    return {plot.name: plot.text for plot in plots}
