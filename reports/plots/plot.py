"""A plot of the report: two SVG files, light and dark, drawn from data that is computed from the facts."""

import hashlib
import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from html import escape
from pathlib import Path
from typing import Any

import headcount
from headcount.bench.env import drawing
from headcount.reports.document import Maker
from headcount.reports.facts import Facts
from headcount.reports.plots import style
from headcount.reports.plots.style import THEMES, Theme


@dataclass(frozen=True)
class Plot:
    """A plot in ``name``.svg and ``name``-dark.svg. ``data`` is plain data as in JSON; ``draw`` makes a figure of it.

    ``alternative`` says in words what the plot shows.
    """

    name: str
    alternative: str
    data: Callable[[Facts], Any]
    draw: Callable[[Any], Any]

    def text(self, facts: Facts, theme: Theme) -> str:
        """Return the SVG file. A stored file of the same data and sources is used as it is: nothing is drawn then."""
        digest = self.digest(_data(self, facts))
        stored = self._stored(theme)
        return stored if f">{digest}</dc:identifier>" in stored else self.render(facts, theme)

    def digest(self, data: Any) -> str:
        """Return a digest of the data, the words and the sources that draw it."""
        sources = (Path(sys.modules[name].__file__) for name in (self.draw.__module__, style.__name__, __name__))
        parts = [json.dumps(data), self.alternative, *(path.read_text("utf-8") for path in sources)]
        return f"sha256:{hashlib.sha256(''.join(parts).encode()).hexdigest()}"

    def render(self, facts: Facts, theme: Theme) -> str:
        """Draw the SVG file. EnvironmentMissing without matplotlib."""
        data, out = _data(self, facts), io.StringIO()
        metadata = {"Date": None, "Creator": None, "Description": self.alternative, "Identifier": self.digest(data)}
        with drawing().style.context(["default", theme.settings()]):
            figure = self.draw(data)
            figure.savefig(out, format="svg", metadata=metadata)
            drawing().close(figure)
        return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())

    def shown(self, facts: Facts) -> str:
        """Return the plot in a page: the dark file where the reader's browser prefers dark."""
        return self.picture()

    def picture(self, folder: str = "") -> str:
        """Return the HTML that shows the files of ``folder``."""
        return (
            f'<picture>\n<source media="(prefers-color-scheme: dark)" srcset="{folder}{self.name}-dark.svg">\n'
            f'<img alt="{escape(self.alternative)}" src="{folder}{self.name}.svg">\n</picture>'
        )

    def _stored(self, theme: Theme) -> str:
        path = (headcount.CHECKOUT or Path()) / "reports" / "generated" / f"{self.name}{theme.suffix}.svg"
        return path.read_text("utf-8") if headcount.CHECKOUT and path.exists() else ""


@lru_cache(maxsize=1)
def _data(plot: Plot, facts: Facts) -> Any:
    """Return the plot's data, computed once for both themes."""
    return plot.data(facts)


def files(*plots: Plot) -> dict[str, Maker]:
    """Return the makers of plots by the names of their files."""
    return {f"{plot.name}{theme.suffix}.svg": partial(plot.text, theme=theme) for plot in plots for theme in THEMES}
