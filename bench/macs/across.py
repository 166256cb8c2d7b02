"""A survey with the values of one letter as columns, as papers print it. Importable without torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from headcount.bench.column import Column
from headcount.bench.errors import UsageError
from headcount.bench.macs.survey import SurveyRow
from headcount.bench.result import Row, Table


@dataclass(frozen=True)
class AcrossRow(Row):
    """The rows of a target that differ in one letter alone.

    Attributes:
        by_value: rows by the value of that letter.
    """

    by_value: Mapping[str, SurveyRow]

    @property
    def first(self) -> SurveyRow:
        """The row of the first value."""
        return next(iter(self.by_value.values()))

    @property
    def notes(self) -> Sequence[str]:
        """The reasons for missing costs."""
        return list(dict.fromkeys(note for row in self.by_value.values() for note in row.notes))


def check_letter(letter: str, varied: Mapping[str, Sequence[str]]) -> None:
    """Raise UsageError where ``letter`` is none of the ``varied`` ones."""
    if letter not in varied:
        names = f"--vary has {', '.join(varied)}" if varied else f"--vary {letter}=128,512 gives its values"
        raise UsageError(f"--across {letter}: it takes a letter of --vary; {names}")


def across(table: Table[SurveyRow], letter: str) -> Table[AcrossRow]:
    """Return the survey with a column for each cost at each value of ``letter``.

    A cost that is the same at every value in every row, as parameters over lengths, has one column.
    """
    groups: dict[tuple[str, ...], dict[str, SurveyRow]] = {}
    for row in table.rows:
        others = (value for name, value in row.at.items() if name != letter)
        groups.setdefault((row.target, *others), {})[row.at[letter]] = row
    rows = [AcrossRow(by_value) for by_value in groups.values()]
    names = ("target", *rows[0].first.at)
    columns: list[Column] = []
    for column in table.columns:
        if column.key in names:
            if column.key != letter:
                columns.append(replace(column, value=partial(_read_first, column)))
        elif _is_constant(column, rows):
            columns.append(replace(column, value=partial(_read_first, column)))
        else:
            columns += [_at_value(column, letter, value) for value in rows[0].by_value]
    # two tables of one paper need different labels in LaTeX
    return replace(table, name=f"{table.name}-across", columns=columns, rows=rows)


def _is_constant(column: Column, rows: Sequence[AcrossRow]) -> bool:
    cells = [{column.read(row) for row in group.by_value.values()} for group in rows]
    return len(rows[0].by_value) > 1 and all(len(values) == 1 for values in cells)


def _at_value(column: Column, letter: str, value: str) -> Column:
    """Return the column of a cost at one value, under a head such as T=8,192."""
    grouped = f"{int(value):,}" if value.isdecimal() else value
    head = f"{column.head}\n{letter}={grouped}"
    return replace(column, key=f"{column.key}_{letter}{value}", head=head, value=partial(_read_at, column, value))


def _read_first(column: Column, row: AcrossRow) -> Any:
    return column.read(row.first)


def _read_at(column: Column, value: str, row: AcrossRow) -> Any:
    return column.read(row.by_value[value])
