"""Where this software's layers are not what the authors' code does: data, typed in departures.toml."""

import tomllib
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, kw_only=True)
class Departure:
    """One difference: ``theirs``, with its ``file`` where that is known, and ``ours``.

    ``field``: that of a configuration which switches between both; ``no_field``: why there is none.
    ``consequence``: what follows from it, a sentence with places for numbers; empty where no number changes.
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
    """The typed departures."""
    return read(files("headcount.formulas.published").joinpath("departures.toml").read_text("utf-8"))


def read(text: str) -> tuple[Departure, ...]:
    """Departures from TOML. ValueError for one with both or neither of a field and a reason why there is none."""
    found = tuple(Departure(**one) for one in tomllib.loads(text)["departure"])
    for one in found:
        if bool(one.field) == bool(one.no_field):
            raise ValueError(f"{one.what}: name a field, or say why there is none")
    return found
