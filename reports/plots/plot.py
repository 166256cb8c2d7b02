"""A plot of the report, a block of pages: SVG files, light and dark, and a PDF for papers, drawn from the facts."""

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
from headcount.bench.output.figure import drawing
from headcount.reports.document import Maker
from headcount.reports.facts import Facts
from headcount.reports.plots import style
from headcount.reports.plots.style import THEMES


@dataclass(frozen=True)
class Plot:
    """A plot in ``name``.svg, ``name``-dark.svg and, without its heading, ``name``.pdf.

    ``data`` returns plain data as in JSON and ``draw`` makes a figure of it; ``alternative`` describes the plot in
    words. A theme is a key of style.THEMES.
    """

    name: str
    alternative: str
    data: Callable[[Facts], Any]
    draw: Callable[[Any], Any]

    @property
    def files(self) -> dict[str, Maker]:
        """The makers of the files, by name."""
        made: dict[str, Maker] = {f"{self.name}{theme}.svg": partial(self.text, theme=theme) for theme in THEMES}
        return made | {f"{self.name}.pdf": self.pdf}

    def text(self, facts: Facts, theme: str) -> str:
        """Return the SVG file; a stored file of the same data and sources is returned and not drawn again."""
        path = headcount.CHECKOUT / "reports" / "generated" / f"{self.name}{theme}.svg"
        stored = path.read_text("utf-8") if path.exists() else ""
        is_current = f">{self.digest(_data(self, facts))}</dc:identifier>" in stored
        return stored if is_current else self.render(facts, theme)

    def pdf(self, facts: Facts) -> bytes:
        """Return the PDF file without title, which a paper's caption has; a stored one as ``text`` does."""
        path = headcount.CHECKOUT / "reports" / "generated" / f"{self.name}.pdf"
        stored = path.read_bytes() if path.exists() else b""
        is_current = self.digest(_data(self, facts)).encode() in stored
        return stored if is_current else self.render_pdf(facts)

    def digest(self, data: Any) -> str:
        """Return a digest of the data, the words and the sources that draw it."""
        sources = (Path(sys.modules[name].__file__) for name in (self.draw.__module__, style.__name__, __name__))
        parts = [json.dumps(data), self.alternative, *(path.read_text("utf-8") for path in sources)]
        return f"sha256:{hashlib.sha256(''.join(parts).encode()).hexdigest()}"

    def render(self, facts: Facts, theme: str) -> str:
        """Draw the SVG file. EnvironmentMissing without matplotlib."""
        data, out = _data(self, facts), io.StringIO()
        metadata = {"Date": None, "Creator": None, "Description": self.alternative, "Identifier": self.digest(data)}
        with drawing().style.context(["default", style.settings(theme)]):
            figure = self.draw(data)
            figure.savefig(out, format="svg", metadata=metadata)
            drawing().close(figure)
        return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())

    def render_pdf(self, facts: Facts) -> bytes:
        """Draw the PDF file. EnvironmentMissing without matplotlib."""
        data, out = _data(self, facts), io.BytesIO()
        metadata = {"CreationDate": None, "Creator": None, "Producer": None, "Subject": self.alternative}
        with drawing().style.context(["default", style.settings("")]):
            figure = self.draw(data)
            style.remove_heading(figure)
            figure.savefig(out, format="pdf", metadata=metadata | {"Keywords": self.digest(data)})
            drawing().close(figure)
        return out.getvalue()

    def __call__(self, facts: Facts) -> str:
        """Return the plot in a page, the dark file where the reader's browser prefers dark, and a link to the PDF."""
        return (
            f'<picture>\n<source media="(prefers-color-scheme: dark)" srcset="{self.name}-dark.svg">\n'
            f'<img alt="{escape(self.alternative)}" src="{self.name}.svg">\n</picture>\n\n[PDF]({self.name}.pdf)'
        )


@lru_cache(maxsize=1)
def _data(plot: Plot, facts: Facts) -> Any:
    """Return the plot's data, computed once for both themes."""
    return plot.data(facts)
