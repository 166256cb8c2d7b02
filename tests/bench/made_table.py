"""A table whose rows are mappings, for tests of how tables are printed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headcount.bench.result import Row, Table


@dataclass(frozen=True)
class MadeRow(Row):
    values: Mapping[str, Any]
    notes: Sequence[str] = ()
    failures: Sequence[str] = ()

    def to_json(self):
        return dict(self.values)


def made_table(columns, rows, name="t", title="T", **options):
    """Return a table of rows by key: mappings, or MadeRow where one has notes or failures."""
    read = [replace(one, value=lambda row, key=one.key: row.values[key]) for one in columns]
    made = (row if isinstance(row, MadeRow) else MadeRow(row) for row in rows)
    return Table(name, title, read, list(made) if isinstance(rows, Sequence) else made, **options)
