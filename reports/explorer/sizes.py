"""The sizes that the explorer offers: the letters with their ranges, the first sizes, and the papers' layers."""

from collections.abc import Mapping
from typing import Any

from headcount.bench.case import attention_form, layers_of
from headcount.bench.macs import grid
from headcount.bench.variants.variant import variant
from headcount.formulas.symbols import by_letter
from headcount.reports.explorer.forms import VARIANTS, forms
from headcount.reports.facts import Facts

SIZES = {
    "T": (1, 2**20, 1024), "d_m": (16, 2**14, 512), "B": (1, 2**10, 1),
    "K": (1, 2**7, 8), "E": (1, 2**9, 8), "D": (4, 2**10, 128),
    "h": (1, 2**7, 8), "g": (1, 2**7, 8), "d_h": (4, 2**9, 64), "s": (0, 2**6, 2), "r": (0, 2**6, 4),
    "d_c": (4, 2**12, 256), "d_r": (1, 2**9, 32), "d_v": (4, 2**9, 64),
    "d_q": (4, 2**12, 256), "w": (1, 2**20, 4096),
}  # fmt: skip
"""The least and the largest size of each slider and the first size, in the order of the page.

Fields take larger sizes too. The first layers are MoA Base and layers with as many heads; a preset keeps T and B.
"""
DECODERS = "language models"
"""The group of the presets of the tables of training FLOPs."""


def letters() -> list[dict[str, Any]]:
    """Return each letter with its name in the code, its meaning and the range of its slider."""
    rows = [by_letter(letter) for letter in SIZES]
    return [{"letter": r.letter, "word": r.word, "meaning": r.meaning, "range": SIZES[r.letter][:2]} for r in rows]


def presets(facts: Facts) -> list[dict[str, Any]]:
    """Return each layer of a group of published tables once: its preset, its paper, its sizes and its form.

    Omitted are models whose layers differ, and layers that their letters do not determine, such as a router without
    weights.
    """
    rows = [(row.preset, table.paper) for table in facts.tables.values() for row in table.rows]
    whole = (model for table, _ in facts.figures.values() for model in table.rows)
    rows += [(model.preset, DECODERS) for model in whole if model.preset]
    found: dict[tuple, list[dict[str, Any]]] = {}
    for preset, paper in dict.fromkeys(rows):
        kinds = set(layers_of(facts.config(preset)))
        sizes = _sizes(kinds.pop()) if len(kinds) == 1 else None
        if sizes:
            one = {"name": preset, "paper": paper, "sizes": sizes, "form": _form(facts.config(preset), sizes)}
            found.setdefault((paper == DECODERS, *sorted(sizes.items())), []).append(one)
    # of a layer's names one that begins as the paper's do, or the first
    return [min(those, key=lambda one: not one["name"].startswith(one["paper"])) for those in found.values()]


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
