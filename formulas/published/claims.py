"""The papers' claims about cost, with their place and the relations to check, and departures from authors' code.

A relation is a text such as ``moa_macs() < mha_macs()`` over letters and named costs; a cost may be evaluated at
other letters, ``moa_macs(E=E + 1)`` (see :mod:`headcount.formulas.published.expressions`).
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from headcount.formulas.ledger import Size
from headcount.formulas.published.expressions import Expression, Relation
from headcount.formulas.published.typed import from_data


@dataclass(frozen=True)
class Paper:
    """A paper: its source, the names of its printed and executed costs, a remark, and the page of its sentences."""

    name: str
    source: str
    printed: str
    executed: str
    about: str = ""
    page: str = "claims"


@dataclass(frozen=True)
class Threshold:
    """The value of ``letter`` at which both sides of an equality are equal.

    ``holds``: the side on which the executed relation holds, ``above`` or ``below``; ``says``: the same in words. Both
    may be empty.
    """

    letter: str
    relation: Relation
    holds: str = ""
    says: str = ""


@dataclass(frozen=True)
class Rows:
    """A relation between printed numbers of table rows.

    ``rows``: letter -> (table, row), and the column if it is not ``of``. ``of``: a quantity of the tables' columns, a
    quality column of the rows, or a column of a data table, whose rows are named by their first cell.
    """

    label: str
    relation: Relation
    rows: Mapping[str, tuple[str, ...]]
    of: str = "macs"


@dataclass(frozen=True)
class Entries:
    """Relations that must all hold for each entry of a data table (formulas/published/tables.py), or for the sizes of a
    preset's attention."""

    label: str
    relations: tuple[Relation, ...]
    table: str = ""
    preset: str = ""


@dataclass(frozen=True)
class Cell:
    """A cell of a table of figures, printed by its rule, by another ``rule``, or with other sizes or givens.

    ``table``, ``row`` and ``figure`` name it (formulas/published/figures.py).
    """

    label: str
    table: str
    row: str
    figure: str
    rule: str = ""
    set: Mapping[str, Any] = field(default_factory=dict)
    given: Mapping[str, int] = field(default_factory=dict)


Check = Rows | Entries | Cell


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """A sentence of a paper with its place and its checks at the paper's own sizes.

    ``quoted``: ``verbatim``, or ``read as`` if it is paraphrased. ``read_as``: the interpretation that is checked.
    ``because``: why it does not hold. ``not_tested``: why no count or measurement here can confirm it.
    """

    name: str
    paper: str
    place: str
    sentence: str
    quoted: str
    because: str = ""
    read_as: str = ""
    not_tested: str = ""
    rows: tuple[Rows, ...] = ()
    entries: tuple[Entries, ...] = ()
    cells: tuple[Cell, ...] = ()

    @property
    def checks(self) -> tuple[Check, ...]:
        """All checks."""
        return (*self.rows, *self.entries, *self.cells)


@dataclass(frozen=True, kw_only=True)
class Claim(Sentence):
    """A sentence with a premise, and its relation under the printed and under the exact costs.

    ``premise``: letters by others, in order. ``assume``: lower bounds of letters, ``K > 1`` or ``E >= K``.
    ``cases``: conditions on one letter, ``s == 1`` or ``s > 1``, that cover all its values and have formulas of
    their own. ``own``: the tables whose attention layers are the paper's own sizes. ``only_without``: bounds under
    which the executed relation always holds, so that it fails at degenerate sizes alone.
    """

    letters: tuple[str, ...]
    premise: Mapping[str, Expression]
    assume: tuple[Relation, ...]
    as_printed: Relation
    as_executed: Relation
    cases: tuple[Relation, ...] = ()
    threshold: Threshold | None = None
    own: tuple[str, ...] = ()
    only_without: tuple[Relation, ...] = ()

    def complete(self, letters: Mapping[str, Size]) -> dict[str, Size]:
        """Return ``letters`` and those that the premise defines."""
        found = dict(letters)
        for letter, given in self.premise.items():
            found[letter] = given.value(found)
        return found

    def admitted(self, letters: Mapping[str, int]) -> dict[str, int] | None:
        """Return a layer's sizes as a point of this claim; None if premise or assumptions do not hold."""
        point = self.complete({letter: letters[letter] for letter in self.letters})
        # the length is not a size of the layer, and a claim about parameters fixes it
        meets = all(point[letter] == letters[letter] for letter in self.premise if letter != "T")
        free = all(point[letter] > 0 for letter in self.letters)
        return point if meets and free and all(bound.holds(point) for bound in self.assume) else None


@dataclass(frozen=True)
class NamedModel:
    """A model named outside the tables; ``nearest``: the closest preset of a table."""

    name: str
    place: str
    preset: str
    nearest: str


@dataclass(frozen=True)
class Claims:
    """The content of claims.toml."""

    papers: Mapping[str, Paper]
    claims: tuple[Claim, ...]
    sentences: tuple[Sentence, ...]
    timed: tuple[Sentence, ...]
    named_models: tuple[NamedModel, ...]


@dataclass(frozen=True, kw_only=True)
class Departure:
    """A difference from the authors' code: what ``theirs`` does, in ``file`` if known, what ``ours`` does, and ``why``.

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


def load_departures() -> tuple[Departure, ...]:
    """Return all differences in departures.toml."""
    return from_data(tuple[Departure, ...], _read("departures.toml")["departure"], "departure")


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(files("headcount.formulas.published").joinpath(name).read_text("utf-8"))


def load() -> Claims:
    """Return the claims. Raises ValueError for an invalid relation or expression, and for an unknown key."""
    data = {key if key == "timed" else f"{key}s": value for key, value in _read("claims.toml").items()}
    return from_data(Claims, data, "claims.toml")
