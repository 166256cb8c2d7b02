"""The published tables, read from one TOML file per table in this folder."""

import tomllib
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from headcount.formulas.published import columns
from headcount.formulas.published.columns import Adjustment, Column, Row

VERDICTS = (
    "reproduced", "explained", "explained (sizes fitted)", "not reproducible", "unexplained", "no printed value",
)  # fmt: skip
"""Verdicts on printed numbers, from the best on."""
FOLDER = files("headcount.formulas.published")


@dataclass(frozen=True)
class Printed:
    """A printed table: source and place in the source.

    ``paper``: name that groups tables; ``order``: place among all tables.
    """

    name: str
    title: str
    paper: str
    order: int
    source: str
    place: str


@dataclass(frozen=True)
class PublishedTable(Printed):
    """A printed table of MACs and parameters: columns with their rules, rows."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    def column(self, quantity: str) -> Any:
        """Return the column of a quantity; None if the table has none."""
        return next((column for column in self.columns if column.quantity == quantity), None)

    def row(self, name: str) -> Row:
        """Return the row called ``name``. Raises KeyError if there is none."""
        return {row.name: row for row in self.rows}[name]

    @property
    def judged(self) -> tuple[Column, ...]:
        """The columns that decide the verdicts."""
        return tuple(column for column in self.columns if column.judged)

    @property
    def rule(self) -> str:
        """The rules of the judged columns, in words."""
        return " ".join(column.statement for column in self.judged)


def load_tables(folder: Traversable = FOLDER) -> dict[str, PublishedTable]:
    """Return the tables in ``folder`` by name, in order."""
    return {data["name"]: _table(**data) for data in read_toml("row", folder)}


def names(paper: str | None = None, folder: Traversable = FOLDER) -> tuple[str, ...]:
    """Return the names of all tables, or of those of ``paper``, in order."""
    return tuple(data["name"] for data in read_toml("row", folder) if paper in (None, data["paper"]))


def load(name: str, folder: Traversable = FOLDER) -> PublishedTable:
    """Return the table called ``name``. Raises ValueError if there is none."""
    return _table(**find(name, "row", folder))


def find(name: str, key: str, folder: Traversable = FOLDER) -> dict[str, Any]:
    """Return the data of the table called ``name`` that has ``key``. Raises ValueError if there is none."""
    found = {data["name"]: data for data in read_toml(key, folder)}
    if name not in found:
        raise ValueError(f"unknown table {name!r}; choose from {', '.join(found)}")
    return found[name]


@cache
def read_toml(key: str, folder: Traversable = FOLDER) -> list[dict[str, Any]]:
    """Return the data of the TOML files in ``folder`` that have ``key``, in the order that they give."""
    found = [tomllib.loads(file.read_text("utf-8")) for file in folder.iterdir() if file.name.endswith(".toml")]
    return sorted((data for data in found if key in data), key=lambda data: (data["order"], data["name"]))


def _table(*, column, row, **texts) -> PublishedTable:
    made = tuple(columns.make(**one) for one in column)
    return PublishedTable(columns=made, rows=tuple(_row(**one) for one in row), **texts)


def _row(**data) -> Row:
    """Return a row; keys that are no fields of a row are its printed cells."""
    known = {one.name: data.pop(one.name) for one in fields(Row) if one.name in data}
    return Row(**{**known, "adjust": tuple(Adjustment(**terms) for terms in known.get("adjust", ()))}, cells=data)
