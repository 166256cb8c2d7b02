"""What a command returns: tables of typed rows and a sentence. A row is a frozen dataclass, columns print it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from fractions import Fraction
from typing import Any, Generic, TypeVar

from headcount.bench.column import Column
from headcount.formulas.ledger import flops
from headcount.formulas.published.rounding import fixed


class Row:
    """Base of the dataclasses of rows; a type of rows replaces what it needs, by a field or a property."""

    @property
    def notes(self) -> Sequence[str]:
        """Footnotes of the row."""
        return ()

    @property
    def failures(self) -> Sequence[str]:
        """Lines for standard error; one is enough for exit code 1."""
        return ()

    @property
    def total(self) -> bool:
        """Whether the row sums rows above it, and is left out of CSV."""
        return False

    @property
    def exit_code(self) -> int:
        """The exit code of the error by which the row has no numbers."""
        return 0


R = TypeVar("R", bound=Row)


@dataclass(frozen=True)
class Table(Generic[R]):
    """Rows of one dataclass, and the columns that print them.

    Attributes:
        name: the short name of command lines, file names and labels.
        title: the heading.
        columns: one for each printed quantity of a row.
        rows: a list, or an iterator of rows that are printed one by one in the widths that columns reserve.
        above: notes between the title and the rows.
        below: notes behind the rows, read after the last row.
        note_column: key of the column whose cells get the footnote marks, "" where rows have no notes.
        facts: further keys of the table in JSON.
        detail: ``--brief`` leaves the table out of files of tables.
    """

    name: str
    title: str
    columns: Sequence[Column]
    rows: Iterable[R]
    above: Sequence[str] = ()
    below: Sequence[str] = ()
    note_column: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    detail: bool = False

    def only(self, *keys: str) -> "Table[R]":
        """Return the table with only the columns ``keys``, in this order.

        Footnote marks move to the last of them where their own column is left out. Raises KeyError for a column that
        does not exist.
        """
        columns = {column.key: column for column in self.columns}
        marked = self.note_column if self.note_column in ("", *keys) else keys[-1]
        return replace(self, columns=[columns[key] for key in keys], note_column=marked)


@dataclass(frozen=True)
class Result:
    """The answer of a command.

    Attributes:
        tables: its tables, computed as they are printed where they are an iterator.
        sentence: called after the last row; returns the last line, "" for none.
        strict: failures of rows are printed on standard error, and the exit code is 1.
        remark: called after the last row; returns what follows the time and the memory on standard error.
    """

    tables: Iterable[Table]
    sentence: Callable[[], str] = lambda: ""
    strict: bool = True
    remark: Callable[[], str] = lambda: ""


PREFIXES = {"P": 10**15, "T": 10**12, "G": 10**9, "M": 10**6}
OF_PARAMETERS = {"T": 10**12, "B": 10**9, "M": 10**6}


def format_macs(number: int, in_flops: bool, what: str = "") -> str:
    """Return a number of MACs with its unit, "7.96 TMACs (7,959,648,141,312)", and of ``what`` they are."""
    size, unit = (flops(number), "FLOPs") if in_flops else (number, "MACs")
    return _for_people(size, unit, PREFIXES, what)


def format_params(number: int, what: str = " parameters") -> str:
    """Return a number of parameters, "8.03 B parameters (8,030,261,248)"."""
    return _for_people(number, what, OF_PARAMETERS)


def format_bytes(number: int) -> str:
    """Return a number of bytes, "52.22 GB (52,215,679,488)"."""
    return _for_people(number, "B" if number >= PREFIXES["M"] else " bytes", PREFIXES)


def format_value(column: Column, value: Any, in_flops: bool) -> str:
    """Return the value of a column as in a sentence; MACs, parameters and bytes with their unit."""
    if column.of == "MACs":
        return format_macs(value, in_flops)
    if column.of == "params":
        return format_params(value, "")
    return format_bytes(value) if column.of == "bytes" else column.text(value)


def _for_people(number: int, unit: str, prefixes: Mapping[str, int], what: str = "") -> str:
    """Return a number in the largest prefix that it reaches, and the integer; below a million the integer alone."""
    for prefix, size in prefixes.items():
        # what rounds to 1,000 is in the next one
        if round(Fraction(100 * number, size)) >= 100:
            return f"{fixed(Fraction(number, size), 2)} {prefix}{unit} ({number:,}{f' of {what}' if what else ''})"
    return f"{number:,} {unit.strip()}".rstrip() + (f" ({what})" if what else "")


def shown(make: Callable[..., Column], head: str, *words: str, **options: Any) -> Any:
    """Return a field of a row that is a column too: ``make`` makes it of the field's name, ``head`` and the options."""
    return field(metadata={"column": lambda key: make(key, head, *words, **options)})


def columns_of(row: type[Row]) -> list[Column]:
    """Return the columns of a row's fields, in their order."""
    return [one.metadata["column"](one.name) for one in fields(row) if "column" in one.metadata]


def to_json(value: Any) -> Any:
    """Return ``value`` as JSON: a dataclass by its ``to_json``, else by its fields; a fraction as a decimal.

    A row without failures has none in JSON.
    """
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_dataclass(value):
        names = [one.name for one in fields(value)]
        return {name: to_json(getattr(value, name)) for name in names if name != "failures" or value.failures}
    if isinstance(value, Mapping):
        return {key: to_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(one) for one in value]
    return float(value) if isinstance(value, Fraction) else value
