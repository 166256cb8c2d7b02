"""Printed tables without costs: settings, quality, analyses, with their place in the paper."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources.abc import Traversable

from headcount.formulas.published.tables import FOLDER, Printed, read_toml

Cell = str | int


@dataclass(frozen=True)
class DataColumn:
    """The key of a cell and the head of its column."""

    key: str
    head: str


@dataclass(frozen=True, kw_only=True)
class DataTable(Printed):
    """One printed table or figure; an entry holds its non-empty cells as printed."""

    columns: tuple[DataColumn, ...]
    entries: tuple[Mapping[str, Cell], ...]

    def labelled(self) -> list[tuple[str, Mapping[str, Cell]]]:
        """Return each entry with its first cell."""
        return [(str(entry[self.columns[0].key]), entry) for entry in self.entries]


def load_tables(folder: Traversable = FOLDER) -> dict[str, DataTable]:
    """Return the data tables by name, in order."""
    return {data["name"]: _table(**data) for data in read_toml("entry", folder)}


def _table(*, column, entry, **texts) -> DataTable:
    return DataTable(columns=tuple(DataColumn(**one) for one in column), entries=tuple(entry), **texts)
