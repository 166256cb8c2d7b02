"""The explorer's page: data, style and scripts in one file that loads nothing."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files
from string import Template
from typing import Any

import headcount
from headcount.bench.accounts import ACCOUNTS
from headcount.bench.variants.variant import variant
from headcount.reports import counting
from headcount.reports.counting import Cell
from headcount.reports.explorer import sizes, tables
from headcount.reports.explorer.forms import LAYER_ACCOUNTS, VARIANTS, forms
from headcount.reports.explorer.terms import FAMILIES
from headcount.reports.facts import Facts

FILE = "explorer.html"
SCRIPTS = (
    "exact.js", "words.js", "layers.js", "state.js", "crossings.js", "chart.js", "controls.js", "compare.js",
    "copies.js", "model.js", "judge.js", "heat.js", "start.js",
)  # fmt: skip
"""The scripts in the order of the page."""
FOLDER = files("headcount.reports.explorer") / "template"
MAX_MESSAGE = 160
"""The longest message of a counter, in characters."""
HIDDEN = ("mha", "mla", "mla-ideal", "switchhead", "mla-queries")
"""Layers that the page hides at first; at its first sizes MHA is MHA of the same width."""


def text(facts: Facts) -> str:
    """Return the page."""
    return render(data(facts))


def data(facts: Facts) -> dict[str, Any]:
    """Return what the page evaluates."""
    presets = sizes.presets(facts)
    papers = [one["paper"] for one in presets]
    return {
        "version": headcount.__version__,
        "letters": sizes.letters(),
        "start": {letter: first for letter, (_, _, first) in sizes.SIZES.items()},
        "shown": [form.name for form in forms() if form.name not in HIDDEN],
        **facts.result(counting.terms),
        "accounts": [
            {
                **asdict(one),
                "multiple": one.multiple or (one.name, 1),
                "column": f"{one.key} {one.options}".strip() if one.key in ACCOUNTS else "",
            }
            for one in LAYER_ACCOUNTS
        ],
        "families": FAMILIES,
        "models": facts.result(counting.models),
        "presets": presets,
        "papers": {paper: variant(paper).label if paper in VARIANTS else paper for paper in papers},
        "published": tables.tables(facts),
        "heat": heat(facts.audit()),
    }


def heat(cells: Sequence[Cell]) -> dict[str, Any]:
    """Return the heat map: by formulation and device the cells of all counters.

    A cell is 0 where the count is exact; else its difference, and for each cause its text, the calls and their MACs;
    or, without a count, the reason.
    """

    def shown(cell: Cell) -> Any:
        causes = [[f"{cause['what']} {cause['name']}", cause["calls"], cause["macs"]] for cause in cell.causes]
        return cell.reason[:MAX_MESSAGE] or ([cell.difference, *causes] if cell.difference else 0)

    formulations = {cell.spelling: [cell.spelling, cell.written, cell.exact] for cell in cells}
    devices = list(dict.fromkeys(cell.device for cell in cells))
    return {
        "counters": list(dict.fromkeys(cell.counter for cell in cells)),
        "devices": devices,
        "formulations": list(formulations.values()),
        "rows": [
            [[shown(cell) for cell in cells if (cell.spelling, cell.device) == (name, device)] for device in devices]
            for name in formulations
        ],
    }


def render(found: Mapping[str, Any]) -> str:
    """Return the page around its data."""
    # a tag or a comment in a name would end the element that holds the data
    data = json.dumps(found, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    script = "\n".join(_unindented(name) for name in SCRIPTS)
    page = Template((FOLDER / "page.html").read_text("utf-8"))
    return page.substitute(version=found["version"], style=_unindented("style.css"), data=data, script=script)


def _unindented(name: str) -> str:
    """Return a file of the template without indentation; none of its texts spans lines."""
    return "\n".join(line.strip() for line in (FOLDER / name).read_text("utf-8").splitlines())
