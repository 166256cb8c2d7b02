"""Tables of any paper, in the file of a user: TOML as the tables of this folder, or CSV with the columns of HEADER."""

import csv
import re
from pathlib import PurePath
from typing import Any

from headcount.formulas.published.expressions import expression
from headcount.formulas.published.figures import LETTERS, QUANTITIES, Row
from headcount.formulas.published.tables import PublishedTable, check, parse
from headcount.formulas.published.typed import parse_toml
from headcount.formulas.symbols import NAMES

HEADER = ("target", "quantity", "printed")
"""Columns of a CSV file."""
RESERVED = {*NAMES, *LETTERS, *QUANTITIES}
"""Names of sizes and quantities, which follow from the target of a row and cannot be given."""
_FOLLOWS = "quantities and sizes follow from the target"


def load(path: str, text: str, rule: str = "", find_rule: bool = False) -> PublishedTable:
    """Return the table in ``text``, the content of the file ``path``; ``rule`` replaces that of the file.

    To ``find_rule``, a column of training needs none. Raises ValueError, with the line of the row, for anything that is
    not in the format, or that takes a name which has a meaning already.
    """
    # a number with a point is a rounded one, whose digits count
    data = _read_csv(text) if path.endswith(".csv") else parse_toml(text, parse_float=str)
    data = {"name": PurePath(path).stem, **data} | ({"rule": rule} if rule else {})
    table = parse(data, _row_lines(path, text))
    _check_figures(table)
    for figure in () if find_rule else table.quantities.values():
        table.rule_of(figure)
    for row in table.rows:
        try:
            _check_row(row, table)
        except ValueError as error:
            raise ValueError(f"line {row.line}: {error}") from None
    return table


def _check_figures(table: PublishedTable) -> None:
    """Raise ValueError for a figure with a name or a head that has a meaning already."""
    heads = {*QUANTITIES, *(known.head.lower() for known in QUANTITIES.values())}
    for figure in table.columns:
        if figure.name != figure.quantity:
            words = {figure.name.lower()} if figure.quantity else {figure.name.lower(), figure.head.lower()}
            what = f"a figure cannot be {figure.name!r}, {figure.head!r}: {_FOLLOWS}"
            check(figure.name not in RESERVED and not heads & words, what)


def _check_row(row: Row, table: PublishedTable) -> None:
    """Raise ValueError for a row without a target or a number, and for a letter that it cannot give or does not."""
    for key in ("target", "printed"):
        check(getattr(row, key), f"a row without {key}; it has target and printed")
    for name in row.given:
        check(name not in RESERVED, f"given cannot have {name!r}: {_FOLLOWS}; set changes sizes")
    for figure in table.columns:
        if figure.name in row.printed:
            value, known = row.value_of(figure), [*LETTERS, *row.given]
            missing = expression(value).letters - {*known}
            check(not missing, f"{value!r} needs a size for {min(missing, default='')}; it has {', '.join(known)}")


def _row_lines(path: str, text: str) -> tuple[int, ...]:
    """Return the line at which each row of a file stands."""
    if path.endswith(".csv"):
        cells = csv.reader(text.splitlines())
        return tuple(cells.line_num for row in cells if row)[1:]
    return tuple(at for at, line in enumerate(text.splitlines(), 1) if re.match(r"\s*\[\[\s*row\s*\]\]", line))


def _read_csv(text: str) -> dict[str, Any]:
    """Return a CSV file as the TOML file that says the same."""
    lines = csv.reader(text.splitlines())
    try:
        header, rows = next(lines, []), []
        check(tuple(header) == HEADER, f"line 1: the header is {','.join(header)!r}; it must be {','.join(HEADER)}")
        for cells in filter(None, lines):
            what = f"line {lines.line_num}: {len(cells)} cells; a row has {', '.join(HEADER)}"
            check(len(cells) == len(HEADER), what)
            target, quantity, printed = cells
            rows.append({"target": target, "printed": {quantity: printed}})
    except csv.Error as error:
        raise ValueError(f"line {lines.line_num}: {error}") from None
    return {"row": rows}
