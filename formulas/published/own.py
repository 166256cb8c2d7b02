"""Tables of any paper, in the file of a user: TOML as the tables of this folder, or CSV or markdown.

These have the columns of HEADER or WIDE.
"""

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from pathlib import PurePath
from typing import Any

from headcount.formulas.conventions import TRAINING
from headcount.formulas.published.expressions import expression
from headcount.formulas.published.figures import LETTERS, QUANTITIES, Row
from headcount.formulas.published.rounding import UNITS
from headcount.formulas.published.tables import PublishedTable, check, check_name, parse, read_each, split_target
from headcount.formulas.published.typed import parse_toml
from headcount.formulas.symbols import NAMES

HEADER = ("target", "quantity", "printed")
"""Columns of a CSV file with a row for each number."""
WIDE = ("model", "params", "macs")
"""Columns of one with a row for each model, whose quantities are any."""
WORDS = {"param": "params", "parameter": "params", "parameters": "params", "mac": "macs", "flop": "flops"}
"""Words of papers' heads, as of "#param." and "Active parameters", by those of quantities."""
TEXTS = ("name", "input", "note")
"""Columns that are the fields of a row, as in TOML, and print no number."""
NEAR = 0.77
"""The likeness of a head and a quantity, by difflib, from which on it is a slip: "acts" and "fps" are none."""
_HEAD = re.compile(r"(.*?)\s*(?:[(\[]\s*([KMGBTP%]?)\s*(?i:macs?|flops?|params?)?\s*[)\]])?\s*", re.DOTALL)
RESERVED = {*NAMES, *LETTERS, *QUANTITIES}
"""Names of sizes and quantities, which follow from the target of a row and cannot be given."""
_FOLLOWS = "quantities and sizes follow from the target"


def load(path: str, text: str, rule: str, find_rule: bool, check_target: Callable[[str], None]) -> PublishedTable:
    """Return the table in ``text``, the content of the file ``path``; ``rule`` replaces that of the file.

    To ``find_rule``, a column of training needs none. ``check_target`` raises ValueError for an unknown target.
    Raises ValueError, with the line of each wrong row, for anything that is not in the format, or that takes a name
    which has a meaning already.
    """
    # a number with a point is a rounded one, whose digits count
    is_toml = path.lower().endswith(".toml")
    data, lines, wrong, ignored = (
        (parse_toml(text, parse_float=str), _row_lines(text), [], []) if is_toml else _read_cells(text)
    )
    data = {"name": PurePath(path).stem, **data} | ({"rule": rule} if rule else {})
    parts: list[tuple[str, Callable[[], Any]]] = [("", partial(check, False, line)) for line in wrong]
    # the types of other data are wrong
    for line, row in zip(lines, data["row"], strict=False) if isinstance(data.get("row"), list) else ():
        if isinstance(row, Mapping) and isinstance(row.get("target"), str):
            parts.append((f"line {line}: ", partial(check_target, split_target(row["target"])[0])))
    parts.append(("", partial(parse, data, lines)))
    table: PublishedTable = read_each(parts)[-1]
    _check_figures(table)
    if not find_rule:
        rules = {table.rule_of(figure) for figure in table.quantities.values()}
        is_named = all(isinstance(row.get("printed"), Mapping) for row in data["row"])
        is_used = table.rule in rules or (table.rule in QUANTITIES and not is_named)
        check(is_used or not table.rule, _without_effect(table))
    read_each([(f"line {row.line}: ", partial(_check_row, row, table)) for row in table.rows])
    # a cell is judged where another of its row cannot be
    cells = [replace(row, printed={name: text}) for row in table.rows for name, text in row.printed.items()]
    return replace(table, rows=tuple(cells), ignored=tuple(ignored))


def _without_effect(table: PublishedTable) -> str:
    """Return that the rule of a table changes none of its numbers, and what it is for."""
    what = f"the rule {table.rule!r} changes no number: the rows print {', '.join(table.quantities)}"
    if table.rule in QUANTITIES:
        head = QUANTITIES[table.rule].head
        of_none = f"{table.rule} is no rule, but the quantity of numbers of a TOML file that name none"
        return f"{what}; {of_none}; a column that holds {head} is headed {table.rule}"
    costs = "the FLOPs of training" if table.rule in TRAINING else "MACs and FLOPs of a forward pass"
    return f"{what}, and {table.rule} counts {costs}"


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


def _row_lines(text: str) -> tuple[int, ...]:
    """Return the line at which each row of a TOML file stands."""
    return tuple(at for at, line in enumerate(text.splitlines(), 1) if re.match(r"\s*\[\[\s*row\s*\]\]", line))


def _read_cells(text: str) -> tuple[dict[str, Any], tuple[int, ...], list[str], list[str]]:
    """Return a table of CSV or markdown as the TOML file that says the same, a row for each cell, the lines of these,
    an error for each line of more or fewer cells, and the heads of columns that are no part of it."""
    (at, header), *lines = [*_split_lines(text)] or [(1, [])]
    columns = _columns(header)
    names = [name for name, _ in columns]
    is_long = {*HEADER} <= {*names}
    others = [name for name in names if name not in ("target", *TEXTS, *(HEADER if is_long else ()))]
    read_each([(f"line {at}: ", partial(_check_typo, name)) for name in others])
    quantities = [name for name in others if name in QUANTITIES]
    if names.count("target") != 1 or not (quantities or is_long):
        what = f"it must be {','.join(HEADER)}, or the target and its quantities, as {','.join(WIDE)}"
        raise ValueError(f"line {at}: the header is {','.join(header)!r}; {what}")
    for name in TEXTS:
        check(names.count(name) < 2, f"line {at}: two columns are {name}")
    check(lines, f"line {at}: the header is all there is; each line below it is a row")
    rows: list[dict[str, Any]] = []
    at_lines: list[int] = []
    wrong = []
    place = names.index("target")
    for line, cells in lines:
        # sizes behind the commas of a target that has no quotes
        while len(cells) > len(names) and re.match(r"[A-Za-z_]\w*=", cells[place + 1]):
            cells = [*cells[:place], f"{cells[place]},{cells[place + 1]}", *cells[place + 2 :]]
        if len(cells) != len(names):
            wrong.append(f"line {line}: {len(cells)} cells; a row has {', '.join(names)}")
            continue
        texts = {name: text for name, text in zip(names, cells, strict=True) if name in ("target", *TEXTS) and text}
        printed = [(*column, text) for column, text in zip(columns, cells, strict=True) if column[0] in quantities]
        if is_long:
            printed = [(*_column(cells[names.index("quantity")]), cells[names.index("printed")])]
        for name, unit, text in printed:
            if text or is_long:
                number = text + unit if text[-1:].isdigit() else text
                rows.append({"target": "", **texts, "printed": {name: number}})
                at_lines.append(line)
    ignored = [head for head, name in zip(header, names, strict=True) if name in others and name not in quantities]
    return {"row": rows}, tuple(at_lines), wrong, ignored


def _check_typo(name: str) -> None:
    """Raise ValueError for the head of a column that is no quantity and looks like one: its letters in another order,
    or nearly its name."""
    if name not in QUANTITIES:
        swapped = [known for known in QUANTITIES if sorted(known) == sorted(name)]
        if swapped or get_close_matches(name, QUANTITIES, cutoff=NEAR):
            check_name(name, QUANTITIES, "quantity", " in the header")


def _split_lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the line and the cells of each row of the first table of a markdown file, else of CSV."""
    lines = text.splitlines()
    if table := [(at, line.strip()) for at, line in enumerate(lines, 1) if line.lstrip().startswith("|")]:
        for number, (at, line) in enumerate(table, table[0][0]):
            cells = [cell.strip(" *`") for cell in line.removeprefix("|").removesuffix("|").split("|")]
            if at == number and not {*"".join(cells)} <= {*"-:"}:
                yield at, cells
        return
    first = next(filter(str.strip, lines), "")
    rows = csv.reader(lines, delimiter=next((mark for mark in ";\t" if mark in first), ","), skipinitialspace=True)
    try:
        for row in rows:
            if any(map(str.strip, row)):
                yield rows.line_num, [cell.strip() for cell in row]
    except csv.Error as error:
        raise ValueError(f"line {rows.line_num}: {error}") from None


def _columns(header: Sequence[str]) -> list[tuple[str, str]]:
    """Return the name and the unit of each column; beside a column "target" that of models has names to print."""
    columns = [_column(head) for head in header]
    heads = [head.strip().lower() for head in header]
    if "target" in heads:
        columns = [
            ("name", unit) if name == "target" and head != "target" else (name, unit)
            for head, (name, unit) in zip(heads, columns, strict=True)
        ]
    return columns


def _column(head: str) -> tuple[str, str]:
    """Return the name of a column and the unit in its head: of "Params (M)", "GMACs/token" and "Model"."""
    words, unit = _HEAD.fullmatch(head).groups(default="")  # type: ignore[union-attr]
    parts = re.findall(r"[a-z0-9]+", words.lower().replace("/", " per "))
    name = "_".join(WORDS.get(part, part) for part in parts)
    if name in ("model", "method"):
        name = "target"
    if name not in QUANTITIES and name[1:] in QUANTITIES and name[0].upper() in UNITS:
        return name[1:], name[0].upper()
    return name, unit
