"""The page: data, style and programs put into one file that loads nothing."""

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import jinja2
import sympy

import headcount
from headcount.bench.accounts import ACCOUNTS
from headcount.bench.variants.variant import variant
from headcount.formulas.symbols import symbol
from headcount.reports.explorer import judged
from headcount.reports.explorer import sizes as offered
from headcount.reports.explorer.forms import LAYER_ACCOUNTS, VARIANTS, Form, forms
from headcount.reports.explorer.terms import WORDS
from headcount.reports.facts import Facts
from headcount.reports.heat_map import Cell

FILE = "explorer.html"
SCRIPTS = (
    "exact.js", "words.js", "layers.js", "state.js", "crossings.js", "chart.js", "controls.js", "compare.js",
    "copies.js", "judge.js", "heat.js", "start.js",
)  # fmt: skip
"""In the order in which they follow one another in the page."""
FOLDER = files("headcount.reports.explorer") / "template"
LONGEST = 160
"""Characters of a tool's message."""
HIDDEN = ("mha", "mla", "mla-ideal", "switchhead")
"""Layers that the page does not show at first; at the sizes where it begins MHA is that of the same width."""
STATIC = ("forward", "decode", "params", "active", "cache")
"""The accounts of the table that is there without a program."""


def text(facts: Facts) -> str:
    """The whole page."""
    return render(data(facts))


def data(facts: Facts) -> dict[str, Any]:
    """What the page evaluates."""
    layers = forms()
    presets = offered.presets(facts)
    return {
        "version": headcount.__version__,
        "letters": offered.letters(),
        "start": offered.start(presets),
        "shown": [form.name for form in layers if form.name not in HIDDEN],
        **facts.terms(),
        "accounts": [
            {"name": a.name, "label": a.label, "unit": a.unit, "column": a.key if a.key in ACCOUNTS else ""}
            for a in LAYER_ACCOUNTS
        ],
        "families": WORDS,
        "presets": presets,
        "papers": {one["paper"]: _paper(one["paper"]) for one in presets},
        "judged": judged.tables(facts),
        "heat": heat(facts.audit()),
    }


def _paper(name: str) -> str:
    """The variant that a paper is called by here, else its own name."""
    return variant(name).label if name in VARIANTS else name


def heat(found: Sequence[Cell]) -> dict[str, Any]:
    """The heat map: by spelling and device the cells of all counters.

    A cell is 0 where the count is exact; else its difference, and for each cause its text, the calls and their MACs;
    or, where there is no count, the reason.
    """
    formulations: dict[str, list[Any]] = {}
    names: dict[str, None] = {}
    rows: dict[tuple[str, str], list[Any]] = {}
    for cell in found:
        formulations[cell.spelling] = [cell.spelling, cell.written, cell.exact]
        names[cell.counter] = None
        why = [[f"{cause['what']} {cause['name']}", cause["calls"], cause["macs"]] for cause in cell.causes]
        read = [cell.difference, *why] if cell.difference else 0
        rows.setdefault((cell.spelling, cell.device), []).append(cell.reason[:LONGEST] or read)
    devices = list(dict.fromkeys(device for _, device in rows))
    return {
        "counters": list(names),
        "devices": devices,
        "spellings": list(formulations.values()),
        "rows": [[rows[name, device] for device in devices] for name in formulations],
    }


def render(found: Mapping[str, Any]) -> str:
    """The page around its data."""
    env = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    page = env.from_string((FOLDER / "page.html").read_text("utf-8"))
    script = "\n".join(_flat(name) for name in SCRIPTS)
    return page.render(
        style=_flat("style.css"),
        # a closing tag would end the element that holds the data
        data=json.dumps(found, separators=(",", ":"), ensure_ascii=False).replace("</", "<\\/"),
        script=script,
        table=static(forms(), found["start"]),
        **found,
    )


def _flat(name: str) -> str:
    """A file of the template without the spaces that its lines begin with; no text in one goes over lines."""
    return "\n".join(line.strip() for line in (FOLDER / name).read_text("utf-8").splitlines())


def static(layers: Sequence[Form], start: Mapping[str, int]) -> dict[str, Any]:
    """The table of the default sizes, computed here."""
    accounts = [account for account in LAYER_ACCOUNTS if account.name in STATIC]
    sizes = {symbol(letter): size for letter, size in start.items()}
    rows = []
    for form in layers:
        values = [account.total(form, {}) for account in accounts]
        rows.append([form.label, [f"{int(sympy.sympify(value, strict=True).subs(sizes)):,}" for value in values]])
    return {"heads": [f"{a.label}{', ' + a.unit if 'bytes' in a.unit else ''}" for a in accounts], "rows": rows}
