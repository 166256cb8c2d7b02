"""The sizes that the explorer offers: the letters with their ranges, the papers' layers, and where it begins."""

from collections.abc import Mapping, Sequence
from typing import Any

from headcount.bench.case import attention_form, layers_of
from headcount.bench.macs import grid
from headcount.bench.variants.variant import variant
from headcount.formulas.symbols import by_letter
from headcount.reports.explorer.forms import VARIANTS
from headcount.reports.facts import Facts

LENGTHS = {"B": 1, "T": 1024}
"""Where lengths begin; a preset leaves them alone."""
RANGES = {
    "T": (1, 2**20), "d_m": (16, 2**14), "B": (1, 2**10),
    "K": (1, 2**7), "E": (1, 2**9), "D": (4, 2**10),
    "h": (1, 2**7), "g": (1, 2**7), "d_h": (4, 2**9), "s": (0, 2**6), "r": (0, 2**6),
    "d_c": (4, 2**12), "d_r": (1, 2**9), "d_v": (4, 2**9),
}  # fmt: skip
"""The least and the largest size of each slider, in the order of the page; fields take larger ones too."""


def letters() -> list[dict[str, Any]]:
    """Each letter with how it is written, its word in the code, its meaning and its slider's range."""
    out = []
    for letter, (least, most) in RANGES.items():
        row = by_letter(letter)
        out.append({"letter": letter, "word": row.word, "meaning": row.meaning, "range": [least, most]})
    return out


def presets(facts: Facts) -> list[dict[str, Any]]:
    """The layers of the published tables, each once: its name, the paper's, its sizes, and the form that it is.

    A model whose layers differ is left out, and a layer whose letters do not say all of it: a router without weights.
    """
    found: dict[tuple, list[dict[str, Any]]] = {}
    for table in facts.tables.values():
        for row in table.rows:
            kinds = set(layers_of(facts.config(row.preset)))
            sizes = _sizes(kinds.pop()) if len(kinds) == 1 else None
            if sizes:
                own = facts.config(row.preset).attention.variant
                one = {"name": row.preset, "paper": table.paper, "sizes": sizes, "form": own}
                found.setdefault(tuple(sorted(sizes.items())), []).append(one)
    # of a layer's names one that begins as the paper's do, or the first
    return [min(those, key=lambda one: not one["name"].startswith(one["paper"])) for those in found.values()]


def _sizes(layer: Any) -> dict[str, int] | None:
    """Return the letters of a layer and of its dense baseline; None where the explorer has no such layer."""
    if layer.variant not in VARIANTS:
        return None
    own = variant(layer.variant)
    chosen = {letter: layer.letters()[letter] for letter in ("d_m", *own.search.letters)}
    again = grid.case_at(own, {**chosen, "T": 1}).config
    if _params(again) != _params(layer):
        return None
    baselines = {one.role: one.config.letters() for one in own.baselines(layer)}
    dense = baselines.get("mha", {})
    return {letter: size for letter, size in {**dense, **chosen}.items() if letter in RANGES}


def _params(layer: Any) -> int:
    """Parameters without biases."""
    sizes = {"bias": False} if "bias" in layer.fields_by_letter else {}
    return attention_form(layer, sizes)("", B=1, T=1, S=1).params


def start(presets: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Where the page begins: the first routed layer of the first paper; what it does not say as the first preset that
    does, with heads in proportion."""
    first = next(one for one in presets if "K" in one["sizes"])["sizes"]
    heads = next(one for one in presets if "s" in one["sizes"])["sizes"]
    split = {letter: first["h"] * heads[letter] // heads["h"] for letter in ("s", "r")}
    latent = variant("mla").config(d_model=first["d_m"], num_heads=first["h"], head_dim=first["d_h"]).letters()
    return {letter: {**LENGTHS, **latent, **split, **first}[letter] for letter in RANGES}
