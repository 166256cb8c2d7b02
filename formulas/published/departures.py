"""Differences between these layers and the authors' code, read from departures.toml."""

import tomllib
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, kw_only=True)
class Departure:
    """One difference: ``theirs``, with its ``file`` if known, and ``ours``.

    ``field``: the configuration field that switches between both; ``no_field``: why there is none.
    ``consequence``: a sentence with places for numbers; empty if no number changes.
    """

    paper: str
    what: str
    theirs: str
    ours: str
    why: str
    file: str = ""
    field: str = ""
    no_field: str = ""
    consequence: str = ""


def load() -> tuple[Departure, ...]:
    """Return the departures, each of which has either a field or no_field."""
    text = files("headcount.formulas.published").joinpath("departures.toml").read_text("utf-8")
    return tuple(Departure(**one) for one in tomllib.loads(text)["departure"])
