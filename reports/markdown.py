"""Small pieces of markdown. Cells are not padded: a change of one cell is a change of one line."""

from collections.abc import Mapping, Sequence
from typing import Any

from headcount.bench.table import Column, Section

MOST_COLUMNS = 8
"""What a page is wide enough for."""


def table(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], notes: Sequence[Sequence[str]] = ()) -> str:
    """A pipe table; ``notes`` are each row's footnotes, marked in the last column and numbered below.

    ValueError for more than MOST_COLUMNS columns, and for none of the rows.
    """
    return _table(columns, rows, notes or [()] * len(rows), columns[-1].key)


def rows_of(section: Section, *keys: str, code: str = "", below: bool = True) -> str:
    """A section's table alone, with its footnotes and what stands below it: all columns, or those called ``keys``;
    the column ``code`` is set as code."""
    section = section.only(*keys) if keys else section
    rows = [{k: f"`{v}`" if k == code else v for k, v in row.values.items()} for row in section.rows]
    notes, marked = [row.notes for row in section.rows], section.table.note_column
    made = _table(section.table.columns, rows, notes if marked else [()] * len(rows), marked)
    return "\n\n".join([made, *(section.below if below else ())])


def _table(columns, rows, notes, marked: str) -> str:
    if len(columns) > MOST_COLUMNS or not rows:
        raise ValueError(f"{len(columns)} columns and {len(rows)} rows: {', '.join(column.key for column in columns)}")
    numbers = {text: number for number, text in enumerate(dict.fromkeys(text for own in notes for text in own), 1)}
    lines = [[" ".join(column.head_lines) for column in columns]]
    lines.append([":--" if column.side == "left" else "--:" for column in columns])
    for row, own in zip(rows, notes, strict=True):
        marks = "".join(f" [{numbers[text]}]" for text in dict.fromkeys(own))
        lines.append([_cell(column.text(row[column.key])) + marks * (column.key == marked) for column in columns])
    made = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n\n".join([made, *(f"[{number}] {text}" for text, number in numbers.items())])


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")


def section(title: str, *parts: str, level: int = 2) -> str:
    """A heading and its parts."""
    return "\n\n".join([f"{'#' * level} {title}", *(part for part in parts if part)])


def anchor(title: str) -> str:
    """The name by which GitHub links to a heading."""
    kept = "".join(c for c in title.lower() if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")


def link(text: str, page: str, title: str = "") -> str:
    """A link to a page, or to a section of one."""
    return f"[{text}]({page}.md{f'#{anchor(title)}' if title else ''})"
