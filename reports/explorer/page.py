"""The explorer's page: sizes, data, style and scripts in one file that loads nothing."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from importlib.resources import files
from string import Template
from typing import Any

import headcount
from headcount.bench.accounts import ACCOUNTS
from headcount.bench.case import attention_form, layers_of
from headcount.bench.macs import grid
from headcount.bench.targets.target import PRESETS
from headcount.bench.variants.variant import variant
from headcount.formulas.symbols import by_letter
from headcount.reports import counting
from headcount.reports.counting import Cell
from headcount.reports.explorer import tables
from headcount.reports.explorer.forms import LAYER_ACCOUNTS, VARIANTS, forms
from headcount.reports.explorer.nodes import ORDER
from headcount.reports.explorer.terms import FAMILIES
from headcount.reports.facts import Facts

FILE = "explorer.html"
SCRIPTS = (
    "exact.js", "words.js", "layers.js", "state.js", "crossings.js", "chart.js", "controls.js", "compare.js",
    "copies.js", "model.js", "judge.js", "heat.js", "target.js", "start.js",
)  # fmt: skip
"""The scripts in the order of the page."""
FOLDER = files("headcount.reports.explorer") / "template"
MAX_MESSAGE = 160
"""The longest message of a counter, in characters."""
HIDDEN = ("mha", "mla", "mla-ideal", "switchhead", "mla-queries")
"""Layers that the page hides at first; at its first sizes MHA is MHA of the same width."""
SIZES = {
    "T": (1, 2**20, 1024), "d_m": (16, 2**14, 512), "B": (1, 2**10, 1),
    "K": (1, 2**7, 8), "E": (1, 2**9, 32), "D": (4, 2**10, 64),
    "h": (1, 2**7, 8), "g": (1, 2**7, 8), "d_h": (4, 2**9, 64), "s": (0, 2**6, 2), "r": (0, 2**6, 4),
    "d_c": (4, 2**12, 256), "d_r": (1, 2**9, 32), "d_v": (4, 2**9, 64),
    "d_q": (4, 2**12, 256), "w": (1, 2**20, 4096),
}  # fmt: skip
"""The least and the largest size of each slider and the first size, in the order of the page.

Fields take larger sizes too. The first layers are those of moa-8K32E64D and layers with as many heads of one width, so
that all are as wide inside; a preset keeps T and B.
"""
DECODERS = "language models"
"""The group of the presets of the tables of training FLOPs."""


def text(facts: Facts) -> str:
    """Return the page."""
    return render(data(facts))


def data(facts: Facts) -> dict[str, Any]:
    """Return what the page evaluates."""
    presets = _presets(facts)
    papers = [one["paper"] for one in presets]
    return {
        "version": headcount.__version__,
        "letters": _letters(),
        "start": {letter: first for letter, (_, _, first) in SIZES.items()},
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
        "targets": _targets(facts),
        "papers": {paper: variant(paper).label if paper in VARIANTS else paper for paper in papers},
        "published": tables.tables(facts),
        "heat": {**heat(facts.audit()), "versions": facts.audit_versions()},
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


def _letters() -> list[dict[str, Any]]:
    """Return each letter with its name in the code, its meaning and the range of its slider."""
    rows = [by_letter(letter) for letter in SIZES]
    return [{"letter": r.letter, "word": r.word, "meaning": r.meaning, "range": SIZES[r.letter][:2]} for r in rows]


def _presets(facts: Facts) -> list[dict[str, Any]]:
    """Return each layer of a group of published tables once: its preset, its paper, its sizes and its form.

    Omitted are models whose layers differ, and layers that their letters do not determine, such as a router without
    weights.
    """
    rows = [(row.target, table.paper) for table in facts.tables.values() for row in table.rows]
    whole = (model for table, _ in facts.figures.values() for model in table.rows)
    rows += [(model.target, DECODERS) for model in whole if model.target]
    found: dict[tuple, list[dict[str, Any]]] = {}
    for preset, paper in dict.fromkeys(rows):
        kinds = set(layers_of(facts.config(preset)))
        sizes = _sizes(kinds.pop()) if len(kinds) == 1 else None
        if sizes:
            one = {"name": preset, "paper": paper, "sizes": sizes, "form": _form(facts.config(preset), sizes)}
            found.setdefault((paper == DECODERS, *sorted(sizes.items())), []).append(one)
    # of a layer's names one that begins as the paper's do, or the first
    return [min(those, key=lambda one: not one["name"].startswith(one["paper"])) for those in found.values()]


def _targets(facts: Facts) -> dict[str, Any]:
    """Return what a TARGET may name: presets with the sizes of their layers, None where the explorer has no such layer,
    and the letters of the fields of models and layers."""
    presets, models = {}, {}
    for name in PRESETS:
        config = facts.config(name)
        kinds = set(layers_of(config))
        sizes = _sizes(next(iter(kinds))) if len(kinds) == 1 else None
        presets[name] = {"model": config.variant, "variant": config.attention.variant, "sizes": sizes}
        models[config.variant] = _letters_of(config)
    layers = {name: _letters_of(variant(name).config) for name in VARIANTS}
    return {"presets": presets, "models": models, "layers": layers}


def _letters_of(config: Any) -> dict[str, str]:
    """Return the letter of each field that is a whole number."""
    letters = {field: letter for letter, field in config.fields_by_letter.items() if letter in ORDER}
    return letters | ({"num_layers": "N"} if "num_layers" in {own.name for own in fields(config)} else {})


def _form(config: Any, sizes: Mapping[str, int]) -> str:
    """Return the form of a model's layers: that of their variant with the most of their letters."""
    own = [form for form in forms() if form.variant.name == config.attention.variant and {*form.letters} <= {*sizes}]
    return max(own, key=lambda form: len(form.letters)).name


def _sizes(layer: Any) -> dict[str, int] | None:
    """Return the letters of a layer and of its dense baseline; None where the explorer has no such layer."""
    if layer.variant not in VARIANTS:
        return None
    own, letters = variant(layer.variant), layer.letters()
    further = [letter for letter in own.grid.letters if letter in SIZES and letters.get(letter)]
    chosen = {letter: letters[letter] for letter in dict.fromkeys(("d_m", *own.search.letters, *further))}
    again = grid.case_at(own, {**chosen, "T": 1}).config
    if _params(again) != _params(layer):
        return None
    dense = own.baselines(layer).get("mha")
    sizes = {**(dense.letters() if dense else {}), **chosen}
    return {letter: size for letter, size in sizes.items() if letter in SIZES}


def _params(layer: Any) -> int:
    """Return the parameters without biases."""
    return attention_form(layer, {"bias": False})("", B=1, T=1, S=1).params


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
