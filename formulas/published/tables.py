"""The printed tables: data files beside this module, one per table, typed once from the paper."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from formulas.rounding import Printing

VERDICTS = ("reproduced", "explained", "no rule", "unexplained", "nothing printed")
NAMES = ("moa-table1", "moa-table2", "moa-table3")


@dataclass(frozen=True)
class Adjustment:
    """``times`` the entries that ``select`` names (formulas/conventions.py), with some sizes replaced."""

    times: int
    select: str
    dims: Mapping[str, int]


@dataclass(frozen=True)
class Row:
    """One printed row; ``macs`` and the values of ``params`` are texts as printed, None where none is."""

    name: str
    preset: str
    macs: str | None
    params: Mapping[str, str]
    verdict: str
    adjust: tuple[Adjustment, ...]
    note: str | None


@dataclass(frozen=True)
class PublishedTable:
    """A printed table: its source, the one rule of its MAC column, that of its parameters, and its rows."""

    name: str
    title: str
    source: str
    place: str
    convention: str
    macs_printing: Printing
    params_printing: Printing
    params_columns: tuple[str, ...]
    rows: tuple[Row, ...]


def load(name: str) -> PublishedTable:
    """The table called ``name``. Raises ValueError, with the list of names, where there is none."""
    if name not in NAMES:
        raise ValueError(f"unknown table {name!r}; choose from {', '.join(NAMES)}")
    data = tomllib.loads(files("formulas.published").joinpath(f"{name.replace('-', '_')}.toml").read_text("utf-8"))
    rule = dict(data["macs_rule"])
    return PublishedTable(
        name=data["name"],
        title=data["title"],
        source=data["source"],
        place=data["place"],
        convention=rule.pop("convention"),
        macs_printing=Printing(**rule),
        params_printing=Printing(**data["params_rule"]),
        params_columns=tuple(data["params_columns"]),
        rows=tuple(_row(row) for row in data["row"]),
    )


def _row(data):
    adjust = tuple(Adjustment(a["times"], a["select"], a.get("dims", {})) for a in data.get("adjust", ()))
    return Row(
        data["name"],
        data["preset"],
        data.get("macs"),
        data["params"],
        data["verdict"],
        adjust,
        data.get("note"),
    )
