"""Tables of printed numbers: those of the papers, one TOML file each in this folder, and what any such file means.

A file with ``[[row]]`` prints costs: a row has a target and its printed cells, and a ``[[figure]]`` says what a column
of cells is. One with ``[[entry]]`` prints no costs.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, TypeVar

from headcount.formulas.conventions import CONVENTIONS, TRAINING
from headcount.formulas.published import library
from headcount.formulas.published.expressions import expression
from headcount.formulas.published.figures import EMPTY, HEADS, QUANTITIES, Figure, Row
from headcount.formulas.published.rounding import MEASURES, ends, measure, number, read
from headcount.formulas.published.rules import FORWARD
from headcount.formulas.published.typed import UNREAD, choices, from_data, parse_toml

T = TypeVar("T")
FOLDER = files("headcount.formulas.published")
READ = ("pdf", "transcription", "repository file", "web page")
"""Kinds of sources from which tables were typed."""


RULES = (*QUANTITIES, *FORWARD, *TRAINING)
"""Names that the ``rule`` of a table may have: a rule, or the quantity of its cells that name none."""


@dataclass(frozen=True, kw_only=True)
class Printed:
    """A printed table: source and place in the source.

    ``paper``: name that groups tables; ``order``: place among all tables; ``about``: a remark.
    """

    title: str = "printed numbers"
    source: str = ""
    place: str = ""
    name: str = ""
    paper: str = ""
    order: int = 0
    about: str = ""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Sizes found from printed figures: the ``sizes`` tried, the ``solutions`` that print every cell of ``models``."""

    models: tuple[str, ...]
    figures: tuple[str, ...]
    sizes: Mapping[str, tuple[int, ...] | Mapping[str, int]]
    solutions: int
    note: str = ""

    @property
    def tried(self) -> dict[str, Sequence[int]]:
        """The sizes by name; a file lists them, or has the first and the last as ``{ from, to }``."""
        listed = self.sizes.items()
        return {name: range(one["from"], one["to"] + 1) if isinstance(one, Mapping) else one for name, one in listed}


@dataclass(frozen=True, kw_only=True)
class PublishedTable(Printed):
    """A table of printed costs: columns with their rules, rows.

    Attributes:
        rule: the rule of columns that state none.
        peak: FLOP/s of a device, the ``peak`` of expressions.
        trailing_zeros: zeros at the end of a printed integer are no digits.
        set, given: those of every row.
        columns: in a file each is a ``[[figure]]``; a quantity that a row prints needs none.
        rows: in a file each is a ``[[row]]``.
        file: a CSV file in this folder with the rows of a library's models, as formulas/published/library.py reads it.
        decimals: decimals of the figures in ``file``, which leaves out last zeros.
        counted_with: the versions that counted the models of these rows.
        fits: in a file each is a ``[[fit]]``.
        read: one of READ.
        address: where it can be read.
        second: the address of a second source, in which each printed figure was read again, digit by digit.
        ignored: heads of columns of a file that are neither models nor quantities.
        also: other sources, or those of a part of its figures or sizes; a table without both was read once.
    """

    rule: str = ""
    peak: int | str = ""
    trailing_zeros: bool = False
    set: Mapping[str, Any] = field(default_factory=dict)
    given: Mapping[str, int | str] = field(default_factory=dict)
    columns: tuple[Figure, ...] = field(default=(), metadata={"key": "figure"})
    rows: tuple[Row, ...] = field(default=(), metadata={"key": "row"})
    fits: tuple[Fit, ...] = field(default=(), metadata={"key": "fit"})
    file: str = ""
    decimals: int = 0
    counted_with: str = field(default="", metadata=UNREAD)
    read: str = ""
    address: str = ""
    second: str = ""
    also: str = ""
    ignored: tuple[str, ...] = field(default=(), metadata=UNREAD)

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
    def statement(self) -> str:
        """The rules of the judged columns, in words."""
        return " ".join(column.statement for column in self.judged)

    @property
    def quantities(self) -> dict[str, Figure]:
        """The columns of which a row prints a number, by name, in the order of the rows."""
        columns = {column.name: column for column in self.columns}
        cells = (cell for row in self.rows for cell in row.printed.items())
        return {name: columns[name] for name, text in cells if text not in EMPTY}

    @property
    def only_quantity(self) -> str:
        """The quantity of the cells that name none: what the rule counts."""
        if self.rule in QUANTITIES:
            return self.rule
        return "training_flops_per_token" if self.rule in TRAINING else "macs"

    def rule_of(self, figure: Figure) -> str:
        """Return the rule of a column; empty where its value has none. Raises ValueError for one of training that has
        no rule of training."""
        if figure.rule:
            return figure.rule
        if figure.is_of_training:
            if self.rule not in TRAINING:
                valid = f"choose from {', '.join(TRAINING)}; --find-rule tries all"
                raise ValueError(f"{figure.name} needs a rule of training, not {self.rule!r}; {valid}")
            return self.rule
        if "macs" in figure.letters:
            return self.rule if self.rule in FORWARD else "exact"
        return ""

    def quote(self, figure: Figure, lengths: Sequence[tuple[str, int | None]]) -> str:
        """Return a sentence for a paper: the quantity, its rule, what that counts, T, and the peak where it is used.

        ``lengths``: the name and T of each row; rows are named where some have none.
        """
        digits = ["truncated to the printed digits"] if figure.truncated else []
        name = self.rule_of(figure)
        if not name:
            # the words of a quantity, of which papers may leave out embeddings
            what = figure.about and figure.about[0].lower() + figure.about[1:]
            tables = " with embeddings" if figure.expression in ("N", "N_active") else ""
            at = _lengths_in_words(lengths) if "cache" in figure.letters else []
            return "; ".join([f"{figure.head}{tables}: {what or figure.expression}", *at, *digits]) + "."
        rule = CONVENTIONS[name]
        parts = [f"{figure.head} by the rule {rule.name}: {rule.about.rstrip('.')}"]
        parts += ["2 FLOPs for each multiply-accumulate"] if figure.quantity.startswith("flops") else []
        parts += _lengths_in_words(lengths)
        parts += [f"peak {self.peak} FLOP/s"] if "peak" in figure.letters else []
        parts += digits
        return "; ".join(parts) + (f" ({rule.source})." if rule.source else ".")

    @property
    def reading(self) -> str:
        """Describe the source of the table in words."""
        again = [f"each figure again in {self.second}"] * bool(self.second) + [f"also {self.also}"] * bool(self.also)
        return f"Read: {self.read}, {self.address}; {'; '.join(again) or 'read once'}."


def _lengths_in_words(lengths: Sequence[tuple[str, int | None]]) -> list[str]:
    """Return the lengths of rows in words, each once, and where some have none the rows that do, or all but these."""
    sizes = sorted({length for _, length in lengths if length})
    if not sizes:
        return []
    known = dict.fromkeys(name for name, length in lengths if length)
    others = dict.fromkeys(name for name, length in lengths if not length)
    of = f" of all but {', '.join(others)}" if len(others) < len(known) else f" of {', '.join(known)}"
    return [f"T = {', '.join(f'{size:,}' for size in sizes)}{of if others else ''}"]


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
    return {data["name"]: _data_table(**data) for data in _read_folder(FOLDER) if "entry" in data}


def _data_table(*, column, entry, **texts) -> DataTable:
    return DataTable(columns={one["key"]: one["head"] for one in column}, entries=entry, **texts)


def load_tables(folder: Traversable = FOLDER) -> dict[str, PublishedTable]:
    """Return the tables of MACs and parameters in ``folder`` by name, in order."""
    return {name: load(name, folder) for name in names(folder=folder)}


def names(paper: str | None = None, folder: Traversable = FOLDER) -> tuple[str, ...]:
    """Return the names of the tables of MACs and parameters, or of those of ``paper``, in order."""
    found = [data for data in _read_folder(folder) if _has_rows_of_models(data)]
    return tuple(data["name"] for data in found if paper in (None, data["paper"]))


def figure_names(folder: Traversable = FOLDER) -> tuple[str, ...]:
    """Return the names of all other tables of figures, in order."""
    return tuple(data["name"] for data in _read_folder(folder) if _has_rows(data) and not _has_rows_of_models(data))


def library_names(folder: Traversable = FOLDER) -> tuple[str, ...]:
    """Return the names of those tables of figures that a library prints of its models, in order."""
    return tuple(data["name"] for data in _read_folder(folder) if "file" in data)


def _has_rows(data: Mapping[str, Any]) -> bool:
    """Return whether a file is a table of costs."""
    return "row" in data or "file" in data


def _has_rows_of_models(data: Mapping[str, Any]) -> bool:
    """Return whether all columns of a table are quantities, so that a row of it is a model with its costs."""
    return "row" in data and all("quantity" in one for one in data["figure"])


def load(name: str, folder: Traversable = FOLDER) -> PublishedTable:
    """Return the table called ``name``. Raises ValueError for an unknown name, rule or way of reading."""
    found = {data["name"]: data for data in _read_folder(folder) if _has_rows(data)}
    check_name(name, (*names(folder=folder), *figure_names(folder)), "table")
    data = found[name]
    if "file" in data:
        rows = library.rows(data, folder)
    else:
        # a row of a paper that types no verdict is reproduced
        rows = [{"verdicts": {}} | row for row in data["row"]]
    table = parse({**data, "row": rows})
    if table.file:
        table = replace(table, counted_with=library.read_counts(name, folder)[0])
    check(table.read in ("", *READ), f"read of {name} must be one of {', '.join(READ)}, not {table.read!r}")
    return table


def _data_of(folder: Traversable) -> list[dict[str, Any]]:
    """Return the data of the TOML files of tables in ``folder``, in the order that they give."""
    texts = [file.read_text("utf-8") for file in folder.iterdir() if file.name.endswith(".toml")]
    found = [data for data in map(parse_toml, texts) if "order" in data]
    return sorted(found, key=lambda data: (data["order"], data["name"]))


# Traversable declares no hash
_read_folder: Callable[[Traversable], list[dict[str, Any]]] = cache(_data_of)  # type: ignore[assignment]


def parse(data: Mapping[str, Any], lines: Sequence[int] = ()) -> PublishedTable:
    """Return the table that the ``data`` of a file means; its rows stand at ``lines``.

    Raises ValueError, with the line of the row, for anything that is not in the format.
    """
    figures, found = data.get("figure", []), data.get("row", [])
    check(
        isinstance(figures, list) and isinstance(found, list), "figures and rows are tables; write [[figure]], [[row]]"
    )
    others = {key: value for key, value in data.items() if key not in ("figure", "row")}
    table = from_data(PublishedTable, others)
    if table.rule:
        check_name(table.rule, RULES, "rule")
    if table.peak:
        peak = _read("peak", number, str(table.peak))
        table = replace(table, given={**table.given, "peak": f"{peak.numerator}/{peak.denominator}"})
    columns = {column.name: column for column in map(_parse_figure, figures)}
    check(len(columns) == len(figures), "two figures have one name")
    check(found, "no row; a [[row]] has target and printed")
    # rows in one array have no lines of their own
    lines = lines if len(lines) == len(found) else [1] * len(found)

    def row_at(line: int, row: Any) -> Row:
        return replace(_parse_row(row, table, QUANTITIES | columns), line=line)

    rows = [
        *read_each([(f"line {line}: ", partial(row_at, line, row)) for line, row in zip(lines, found, strict=True)])
    ]
    columns |= {name: QUANTITIES[name] for row in rows for name in row.printed if name not in columns}
    printed = [replace(column, trailing_zeros=table.trailing_zeros) for column in columns.values()]
    return replace(table, columns=tuple(printed), rows=tuple(rows))


def check(fine: Any, what: str) -> None:
    """Raise ValueError for what is not fine."""
    if not fine:
        raise ValueError(what)


def check_name(word: str, valid: Iterable[str], what: str, where: str = "") -> None:
    """Raise ValueError, with the nearest and all valid names, for a word that is none of them."""
    if word not in valid:
        raise ValueError(f"unknown {what} {word!r}{where}; {choices(word, valid)}")


def read_each(readers: Iterable[tuple[str, Callable[[], T]]]) -> list[T]:
    """Return what each function returns. Raises one ValueError with a line for each error, behind the text before its
    function."""
    found, wrong = [], []
    for place, reader in readers:
        try:
            found.append(reader())
        except ValueError as error:
            wrong += [f"{place}{line}" for line in str(error).split("\n")]
    check(not wrong, "\n".join(dict.fromkeys(wrong)))
    return found


def _read(key: str, parser: Callable[[Any], Any], value: Any) -> Any:
    """Return ``value`` as ``parser`` reads it. Raises ValueError with the key."""
    try:
        return parser(value)
    except ValueError as error:
        raise ValueError(f"{key} {error}") from None


def _parse_figure(data: Any) -> Figure:
    """Return a column: a quantity, with the rules that it states, or an expression with name and head."""
    check(isinstance(data, Mapping), "a figure is no table; write [[figure]]")
    if quantity := data.get("quantity"):
        check_name(quantity, QUANTITIES, "quantity")
        check(not data.keys() & {"head", "value"}, f"head and value of {quantity} follow from the quantity")
        known = QUANTITIES[quantity]
        data = {"name": quantity, "head": known.head, "value": known.value, **data}
    check({"name", "head", "value"} <= data.keys(), "a figure has name, head and value, or a quantity")
    figure = replace(from_data(Figure, data), about=QUANTITIES[quantity].about if quantity else "")
    if figure.rule:
        check_name(figure.rule, CONVENTIONS, "rule", f" of {figure.name}")
    for value in figure.values:
        check(not _read("value", expression, value).costs, f"value {value!r} calls a function")
    return figure


def _parse_row(data: Any, table: PublishedTable, known: Mapping[str, Figure]) -> Row:
    """Return a row with the sizes of its ``table``; a number without a quantity is of that of the table's rule."""
    check(isinstance(data, Mapping), "it is no table; write [[row]]")
    printed = data.get("printed", {})
    if not isinstance(printed, Mapping):
        printed = {table.only_quantity: printed}
    row = from_data(Row, {**data, "printed": {name: str(text) for name, text in printed.items()}})
    read_each([("", partial(_check_cell, row, name, text, known)) for name, text in row.printed.items()])
    target, sizes = split_target(row.target)
    given = {**table.given, **row.given}
    for name, value in given.items():
        _read(name, ends, value)
    return replace(row, name=row.name or row.target, target=target, set={**table.set, **sizes, **row.set}, given=given)


def _check_cell(row: Row, name: str, text: str, known: Mapping[str, Figure]) -> None:
    """Raise ValueError for a cell of an unknown column or kind, without a number, or with the unit of another."""
    check_name(name, known, "quantity")
    figure = known[name]
    if not isinstance(figure.value, str):
        check_name(row.kind, figure.value, "kind", f" of {name}")
    if text in EMPTY or figure.formula:
        return
    printed = _read("printed", measure, text)
    is_of = next((what for what in MEASURES.values() if what in figure.head), "%") if figure.quantity else printed
    where = f"printed {text!r} is in {printed}, and {name} in {is_of}"
    check(printed in ("", is_of), f"{where}; name another quantity, or leave {printed} out of the number")
    is_percentage = is_of != "%" or not figure.quantity or not is_amount(text, figure)
    check(is_percentage, f"printed {text!r} is no percentage, and {name}, {figure.head}, is one")


def is_amount(text: str, figure: Figure) -> bool:
    """Return whether a cell is a number that can be no percentage: one in B or M, or of more than all heads.

    Raises ValueError for no number.
    """
    return text not in EMPTY and (read(text)[1] not in ("", "%") or (figure.letters <= HEADS and number(text) > 100))


def split_target(text: str) -> tuple[str, dict[str, str]]:
    """Return a target and the sizes behind its commas; a size may hold commas."""
    target, *words = re.split(r",(?=[^\W\d][\w.]*=)", text)
    return target, dict(word.partition("=")[::2] for word in words)
