"""What the papers print that costs nothing: settings, figures of quality, analyses. Typed once, each with its place."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources.abc import Traversable

from headcount.formulas.published.tables import FOLDER

Cell = str | int


@dataclass(frozen=True)
class DataColumn:
    """The key of an entry's cell and the head that the paper, or this software, gives it."""

    key: str
    head: str


@dataclass(frozen=True)
class DataTable:
    """One printed table or figure; an entry holds its cells as printed, without those that the paper leaves empty.

    ``about``: what must be said beside it.
    """

    name: str
    title: str
    paper: str
    order: int
    source: str
    place: str
    columns: tuple[DataColumn, ...]
    entries: tuple[Mapping[str, Cell], ...]
    about: str = ""

    def column(self, key: str) -> list[Cell]:
        """The cells of a column, of the entries that have one."""
        return [entry[key] for entry in self.entries if key in entry]


@cache
def typed(folder: Traversable = FOLDER) -> dict[str, DataTable]:
    """The data tables by name, in their order. ValueError for a cell of no column, and for an entry without its
    first."""
    texts = [file.read_text("utf-8") for file in folder.iterdir() if file.name.endswith(".toml")]
    found = [data for text in texts if "entry" in (data := tomllib.loads(text))]
    made = [_table(**data) for data in sorted(found, key=lambda data: (data["order"], data["name"]))]
    return {table.name: table for table in made}


def _table(*, column, entry, **texts) -> DataTable:
    columns = tuple(DataColumn(**one) for one in column)
    known = {one.key for one in columns}
    for one in entry:
        if not one.keys() <= known or columns[0].key not in one:
            raise ValueError(f"{texts['name']}: the entry {one} has not the cells {', '.join(sorted(known))}")
    return DataTable(columns=columns, entries=tuple(entry), **texts)
