"""Differences between headcount's layers and the authors' code, read from departures.toml."""

import tomllib
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, kw_only=True)
class Departure:
    """One difference: what ``theirs`` does, in ``file`` if known, what ``ours`` does, and ``why``.

    ``paper`` and ``what`` name the place. ``field``: the configuration field that switches between both; ``no_field``:
    why there is none. ``consequence``: a sentence with format fields for numbers; empty if no number changes.
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
    """Return all differences in the file."""
    text = files("headcount.formulas.published").joinpath("departures.toml").read_text("utf-8")
    return tuple(Departure(**one) for one in tomllib.loads(text)["departure"])
