"""Rows of a table that a library prints of its own models: the figures in one CSV file, stored counts in another.

The file NAME.csv holds what is printed: the columns that name a model and its input, and a column for each figure.
NAME_counts.csv holds what tests/library_counts.py counted of these models, as letters of the figures' expressions, with
``form``, empty of a model as it is built, and ``others``, what the library's counter adds or leaves out that no letter
has. Its first line names the versions.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources.abc import Traversable
from typing import Any

LETTERS = ("params", "products", "batch_norm", "norm", "pooling")
"""Parameters; multiply-accumulates of products and convolutions; elements that batch norms normalise by stored
statistics; those that any norm with a scale normalises by their own; elements that adaptive pooling averages."""
OTHERS = "others"
FORM = "form"


def read_counts(name: str, folder: Traversable) -> tuple[str, list[dict[str, str]]]:
    """Return the versions that counted the models of table ``name``, and its counts."""
    first, *lines = folder.joinpath(f"{name}_counts.csv").read_text("utf-8").splitlines()
    return first.removeprefix("# "), list(csv.DictReader(lines))


def read_printed(file: str, folder: Traversable) -> list[dict[str, str]]:
    """Return the rows of a file of printed figures."""
    return list(csv.DictReader(folder.joinpath(file).read_text("utf-8").splitlines()))


def rows(data: Mapping[str, Any], folder: Traversable) -> list[dict[str, Any]]:
    """Return a row for each line of the file of printed figures of a table's ``data``.

    The letters of a row are the counts of its model. The terms that no letter has explain a figure that these do not
    print. A row of ``data`` replaces keys of the row with its name; where it is ``like`` another row, the counts of
    that one explain its figures, for the reason ``because``.
    """
    figures = {one["name"]: one["value"] for one in data["figure"]}
    lines = read_printed(data["file"], folder)
    keys = keys_of(lines, figures)
    counted = {name_of(count, keys): count for count in read_counts(data["name"], folder)[1]}
    changed = {row["name"]: row for row in data.get("row", ())}
    found: list[dict[str, Any]] = []
    for line in lines:
        name = name_of(line, keys)
        count = counted.get(name, {})
        row: dict[str, Any] = {
            "name": name,
            "printed": {figure: padded(line[figure], data.get("decimals", 0)) for figure in figures},
            "given": _letters(count) if count else {},
            "explain": _explanations(figures, count),
        }
        own = dict(changed.get(name, {}))
        if like := own.pop("like", ""):
            other = {"given": _letters(counted[like]), "because": own.pop("because")}
            own["explain"] = dict.fromkeys(figures, other)
        found.append({**row, **own})
    return found


def keys_of(lines: Sequence[Mapping[str, str]], figures: Iterable[str]) -> list[str]:
    """Return the columns of printed ``lines`` that name a model and its input: those of no figure."""
    left_out = set(figures)
    return [column for column in lines[0] if column not in left_out]


def name_of(line: Mapping[str, str], keys: Iterable[str]) -> str:
    """Return the name of a row: its cells in the columns ``keys``."""
    return " ".join(line[key] for key in keys)


def padded(text: str, decimals: int) -> str:
    """Return a printed number with the last zeros that its file leaves out."""
    whole, point, rest = text.partition(".")
    return f"{whole}.{rest:0<{decimals}}" if point else text


def terms(text: str) -> dict[str, int]:
    """Return the terms of a cell of OTHERS, "what: number; what: number"."""
    pairs = [term.rpartition(": ") for term in text.split("; ") if term]
    return {what: int(number) for what, _, number in pairs}


def _letters(count: Mapping[str, str]) -> dict[str, int]:
    letters = {letter: int(count[letter]) for letter in LETTERS if letter in count}
    return letters | {OTHERS: sum(terms(count[OTHERS]).values())}


def _explanations(figures: Mapping[str, str], count: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return what may print a figure that its rule does not print: the terms that no letter has."""
    others = count.get(OTHERS)
    changed = {figure: value for figure, value in figures.items() if others and "products" in value}
    because = f"{OTHERS}: {others}"
    return {figure: {"value": f"{value} + {OTHERS}", "because": because} for figure, value in changed.items()}
