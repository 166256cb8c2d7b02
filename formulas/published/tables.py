"""The published tables, read from one TOML file per table in this folder.

A file with ``[[column]]`` and ``[[row]]`` prints MACs and parameters of models that are counted. One with
``[[figure]]`` and ``[[model]]`` prints training FLOPs, utilisation, sizes, or formulas. One with ``[[entry]]`` prints
no costs.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from headcount.formulas.conventions import CONVENTIONS
from headcount.formulas.published.figures import QUANTITIES, Figure, Row

FOLDER = files("headcount.formulas.published")
READ = ("pdf", "transcription", "repository file", "web page")
"""Kinds of sources from which tables were typed."""


@dataclass(frozen=True, kw_only=True)
class Printed:
    """A printed table: source and place in the source.

    ``paper``: name that groups tables; ``order``: place among all tables; ``about``: a remark.
    """

    name: str
    title: str
    paper: str
    order: int
    source: str
    place: str
    about: str = ""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Sizes found from printed figures: the ``sizes`` tried, the ``solutions`` that print every cell of ``models``."""

    models: Sequence[str]
    figures: Sequence[str]
    sizes: Mapping[str, Sequence[int]]
    solutions: int
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class PublishedTable(Printed):
    """A printed table: columns with their rules, rows.

    ``read``: one of READ; ``address``: where it can be read; ``second``: the address of a second source, in which each
    printed figure was read again, digit by digit; ``also``: other sources, or those of a part of its figures or sizes;
    a table without both was read once.
    """

    columns: Sequence[Figure]
    rows: Sequence[Row]
    fits: Sequence[Fit] = ()
    read: str = ""
    address: str = ""
    second: str = ""
    also: str = ""

    def column(self, quantity: str) -> Any:
        """Return the first column of a quantity; None if the table has none."""
        return next((column for column in self.columns if column.quantity == quantity), None)

    def row(self, name: str) -> Row:
        """Return the row called ``name``. Raises KeyError if there is none."""
        return {row.name: row for row in self.rows}[name]

    @property
    def judged(self) -> Sequence[Figure]:
        """The columns that decide the verdicts."""
        return [column for column in self.columns if column.judged]

    @property
    def rule(self) -> str:
        """The rules of the judged columns, in words."""
        return " ".join(column.statement for column in self.judged)

    @property
    def reading(self) -> str:
        """Describe the source of the table in words."""
        again = [f"each figure again in {self.second}"] * bool(self.second) + [f"also {self.also}"] * bool(self.also)
        return f"Read: {self.read}, {self.address}; {'; '.join(again) or 'read once'}."


@dataclass(frozen=True, kw_only=True)
class DataTable(Printed):
    """A printed table or figure without costs: settings, quality, analyses.

    ``columns``: the head of each cell by its key; an entry holds its non-empty cells as printed.
    """

    columns: Mapping[str, str]
    entries: Sequence[Mapping[str, str | int]]

    def labelled(self) -> list[tuple[str, Mapping[str, str | int]]]:
        """Return each entry with its first cell."""
        return [(str(entry[next(iter(self.columns))]), entry) for entry in self.entries]


def load_data() -> dict[str, DataTable]:
    """Return the data tables by name, in order."""
    return {data["name"]: _data_table(**data) for data in read_toml("entry")}


def _data_table(*, column, entry, **texts) -> DataTable:
    return DataTable(columns={one["key"]: one["head"] for one in column}, entries=entry, **texts)


def load_tables(folder: Traversable = FOLDER) -> dict[str, PublishedTable]:
    """Return the tables of MACs and parameters in ``folder`` by name, in order."""
    return {data["name"]: _table(**data) for data in read_toml("row", folder)}


def names(paper: str | None = None, folder: Traversable = FOLDER) -> tuple[str, ...]:
    """Return the names of the tables of MACs and parameters, or of those of ``paper``, in order."""
    return tuple(data["name"] for data in read_toml("row", folder) if paper in (None, data["paper"]))


def figure_names(folder: Traversable = FOLDER) -> tuple[str, ...]:
    """Return the names of all other tables of figures, in order."""
    return tuple(data["name"] for data in read_toml("model", folder))


def load(name: str, folder: Traversable = FOLDER) -> PublishedTable:
    """Return the table called ``name``. Raises ValueError for an unknown name, rule or way of reading."""
    found = {data["name"]: data for key in ("row", "model") for data in read_toml(key, folder)}
    if name not in found:
        raise ValueError(f"unknown table {name!r}; choose from {', '.join(found)}")
    return _table(**found[name])


@cache
def read_toml(key: str, folder: Traversable = FOLDER) -> list[dict[str, Any]]:
    """Return the data of the TOML files in ``folder`` that have ``key``, in the order that they give."""
    found = [tomllib.loads(file.read_text("utf-8")) for file in folder.iterdir() if file.name.endswith(".toml")]
    return sorted((data for data in found if key in data), key=lambda data: (data["order"], data["name"]))


def _table(*, column=(), row=(), figure=(), model=(), fits=(), **texts) -> PublishedTable:
    columns = [_column(**one) for one in column] + [Figure(**one) for one in figure]
    for rule in (rule for one in columns for rule in (one.rule, *one.tried)):
        if rule and rule not in CONVENTIONS:
            raise ValueError(f"unknown rule {rule!r} of {texts['name']}; choose from {', '.join(CONVENTIONS)}")
    if texts.get("read", READ[0]) not in READ:
        raise ValueError(f"read of {texts['name']} must be one of {', '.join(READ)}, not {texts['read']!r}")
    rows = [Row(**one) for one in (*row, *model)]
    return PublishedTable(columns=columns, rows=rows, fits=[_fit(**one) for one in fits], **texts)


def _column(*, quantity: str, name: str = "", **rule) -> Figure:
    head, value = QUANTITIES[quantity]
    return Figure(name=name or quantity, head=head, value=value, quantity=quantity, **rule)


def _fit(*, sizes, **others) -> Fit:
    """Return a fit; sizes are listed, or given as ``{ from, to }``."""
    tried = {name: range(one["from"], one["to"] + 1) if isinstance(one, dict) else one for name, one in sizes.items()}
    return Fit(sizes=tried, **others)
