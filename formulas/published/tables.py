"""The printed tables: data files beside this module, one per table, typed once from the paper."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from headcount.formulas.published.rounding import Printing

VERDICTS = ("reproduced", "explained", "no rule", "unexplained", "nothing printed")
MOA_NAMES = ("moa-table1", "moa-table2", "moa-table3")
NAMES = (*MOA_NAMES, "moh-llm", "moh-llama3", "moh-dit", "dense-anchors")


@dataclass(frozen=True)
class Adjustment:
    """``times`` the entries that ``select`` names (formulas/conventions.py), with some sizes replaced.

    ``of``: the column it adjusts, MACs (an entry's size) or parameters.
    """

    times: int
    select: str
    dims: Mapping[str, int]
    of: str = "macs"


@dataclass(frozen=True)
class Row:
    """One printed row; ``macs``, ``activated`` and the values of ``params`` are texts as printed, None where none is.

    ``baseline``: the dense model that a routed row is compared with, as a preset and fields of it.
    """

    name: str
    preset: str
    macs: str | None
    params: Mapping[str, str]
    verdict: str
    adjust: tuple[Adjustment, ...]
    note: str | None
    activated: str | None = None
    baseline: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class PublishedTable:
    """A printed table: its source, the one rule of each column, and its rows; a column without a rule is absent.

    ``judged``: the columns whose rules decide the verdict, of ``macs``, ``params`` and ``activated``.
    """

    name: str
    title: str
    source: str
    place: str
    convention: str | None
    macs_printing: Printing | None
    params_printing: Printing
    params_columns: tuple[str, ...]
    rows: tuple[Row, ...]
    activated_printing: Printing | None = None
    judged: tuple[str, ...] = ("macs",)


def load(name: str) -> PublishedTable:
    """The table called ``name``. Raises ValueError, with the list of names, where there is none."""
    if name not in NAMES:
        raise ValueError(f"unknown table {name!r}; choose from {', '.join(NAMES)}")
    file = files("headcount.formulas.published").joinpath(f"{name.replace('-', '_')}.toml")
    data = tomllib.loads(file.read_bytes().decode())
    rule = dict(data.get("macs_rule", {}))
    return PublishedTable(
        name=data["name"],
        title=data["title"],
        source=data["source"],
        place=data["place"],
        convention=rule.pop("convention", None),
        macs_printing=Printing(**rule) if rule else None,
        params_printing=Printing(**data["params_rule"]),
        params_columns=tuple(data["params_columns"]),
        rows=tuple(_row(row) for row in data["row"]),
        activated_printing=Printing(**data["activated_rule"]) if "activated_rule" in data else None,
        judged=tuple(data.get("judged", ("macs",))),
    )


def _row(data):
    adjust = tuple(
        Adjustment(a["times"], a["select"], a.get("dims", {}), a.get("of", "macs")) for a in data.get("adjust", ())
    )
    return Row(
        data["name"],
        data["preset"],
        data.get("macs"),
        data.get("params", {}),
        data["verdict"],
        adjust,
        data.get("note"),
        data.get("activated"),
        data.get("baseline"),
    )
