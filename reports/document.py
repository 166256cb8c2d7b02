"""Write parts of pages as markdown: tables, links and command lines.

Table cells are not padded, so that a change of one cell changes one line.
"""

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headcount.bench.column import Column
from headcount.bench.output.csv_format import table_as_csv as table_as_csv
from headcount.bench.result import Table
from headcount.reports.facts import Facts, values_of

Maker = Callable[[Facts], str | bytes]
"""A function that returns a text computed from facts."""

CODE_WIDTH = 110
"""The most characters of a line of code that GitHub and the documentation site show without a scroll bar."""
TABLE_WIDTH = 100
"""Characters above which a table is fitted to a page: see _headings."""
FIRST_WIDTH, HEAD_WIDTH = 25, 9
"""Most characters of a first cell on a single line, and fewest characters of a heading on several lines."""


@dataclass(frozen=True)
class File:
    """A file beside the pages. In a page it is the link to the file.

    Attributes:
        name: Name of the file.
        text: Function that returns its text.
    """

    name: str
    text: Maker

    @property
    def files(self) -> dict[str, Maker]:
        """The maker of the file, by name."""
        return {self.name: self.text}

    def __call__(self, facts: Facts) -> str:
        return f"[{self.name}]({self.name})"


def fold(command: str) -> str:
    """Return a command on lines of at most CODE_WIDTH characters; quoted parts, and options with their first value, are
    not broken."""
    masked = re.sub(r"'[^']*'|--[\w-]+ ", lambda part: part[0].replace(" ", "\0"), command)
    lines = textwrap.wrap(masked, CODE_WIDTH - 4, break_long_words=False, break_on_hyphens=False)
    return " \\\n  ".join(lines).replace("\0", " ")


def table(
    columns: Sequence[Column],
    rows: Sequence[Mapping[str, Any]],
    notes: Sequence[Sequence[str]] = (),
    marked: str = "",
) -> str:
    """Return a pipe table. ``notes``: footnotes of each row, numbered below the table and marked in the column
    ``marked``, by default the last one."""
    notes, marked = notes or [()] * len(rows), marked or columns[-1].key
    numbers = {text: number for number, text in enumerate(dict.fromkeys(text for own in notes for text in own), 1)}
    lines = []
    for row, own in zip(rows, notes, strict=True):
        marks = "".join(f" [{numbers[text]}]" for text in dict.fromkeys(own))
        lines.append([_cell(column.text(row[column.key])) + marks * (column.key == marked) for column in columns])
    sides = [":--" if column.side == "left" else "--:" for column in columns]
    made = "\n".join(f"| {' | '.join(line)} |" for line in [_headings(columns, lines), sides, *lines])
    return "\n\n".join([made, *(f"[{number}] {text}" for text, number in numbers.items())])


def _headings(columns: Sequence[Column], lines: Sequence[Sequence[str]]) -> list[str]:
    """Return the headings; of a table above TABLE_WIDTH as narrow as the cells below them, and the first one as wide,
    by spaces where no line breaks, so that GitHub does not break the first cells."""
    heads = [" ".join(column.head_lines) for column in columns]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    if sum(map(max, widths, map(len, heads))) <= TABLE_WIDTH:
        return heads
    folded = [
        "<br>".join(textwrap.wrap(head, max(width, HEAD_WIDTH), break_long_words=False))
        for head, width in zip(heads, widths, strict=True)
    ]
    first = heads[0].replace(" ", FIGURE_SPACE).ljust(min(widths[0] + 2, FIRST_WIDTH), FIGURE_SPACE) + WORD_JOINER
    return [first, *folded[1:]]


FIGURE_SPACE, WORD_JOINER = "\u2007", "\u2060"
"""A space where no line breaks, and an empty character after it, so that no reader of markdown removes it."""


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")


def records(rows: Sequence[Mapping[str, Any]], formats: Mapping[str, Mapping[str, Any]] | None = None) -> str:
    """Return a table whose headings are the rows' keys.

    Columns of integers are right-aligned; ``formats`` gives other columns' options by heading.
    """
    formats = formats or {}
    types = {key: {type(row[key]) for row in rows} - {type(None)} for key in rows[0]}
    columns = [Column(key, key, **formats.get(key, {"kind": "int"} if types[key] == {int} else {})) for key in rows[0]]
    return table(columns, rows)


def rows_of(printed: Table, *keys: str, code: str = "") -> str:
    """Return a table with its footnotes and the lines below it: all columns, or those called ``keys``; the column
    ``code`` is set as code."""
    printed = printed.only(*keys) if keys else printed
    rows = [{key: f"`{value}`" if key == code else value for key, value in row.items()} for row in values_of(printed)]
    marked = printed.note_column
    made = table(printed.columns, rows, [row.notes for row in printed.rows] if marked else (), marked)
    return "\n\n".join([made, *printed.below])


def anchor(title: str) -> str:
    """Return the anchor of a heading on GitHub."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def link(text: str, page: str, title: str = "") -> str:
    """Return a link to a page or to one of its sections."""
    return f"[{text}]({page}.md{f'#{anchor(title)}' if title else ''})"
