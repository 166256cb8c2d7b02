"""Markdown: a section with a pipe table."""

import re
from collections.abc import Iterator, Sequence

from headcount.bench.output.renderer import Renderer
from headcount.bench.table import Column, Row, Section, shown


class Markdown(Renderer):
    """Write a section with a pipe table of every column."""

    def write(self, section: Section, rows: Iterator[Row]) -> None:
        columns = [self.style.adapt(column) for column in self.table.columns]
        heads = [_escape(" ".join(column.head_lines)) for column in columns]
        table = pipe_table(columns, heads, [[self._cell(column, row) for column in columns] for row in rows])
        above, below = (list(map(_plain, notes)) for notes in (self.table.notes_above, self.below(section)))
        self.stream.write("\n\n".join([f"## {_plain(self.table.title)}", *above, table, *below]) + "\n")

    def _cell(self, column: Column, row: Row) -> str:
        cell, text = self.cell(column, row), row.values[column.key]
        return code(text) + cell.removeprefix(shown(text)) if column.code and text else _escape(cell)


def pipe_table(columns: Sequence[Column], heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table of ``lines`` of cells below ``heads``.

    Cells are not padded, so that a change of one cell changes one line of a file.
    """
    sides = [":--" if column.side == "left" else "--:" for column in columns]
    return "\n".join(f"| {' | '.join(line)} |" for line in [heads, sides, *lines])


def code(text: str) -> str:
    """Return ``text`` as code that holds no markup, link, reference or mention, in a table too."""
    if re.fullmatch(r"[\w.*,:/=> -]*[\w*]", text, re.ASCII):
        return f"`{text}`"
    shown = (letter if letter.isprintable() else "\ufffd" for letter in text)
    return f"<code>{''.join(x if x.isalnum() or x == ' ' else f'&#{ord(x)};' for x in shown)}</code>"


def _escape(cell: str) -> str:
    return _plain(cell).replace("|", r"\|")


def _plain(text: str) -> str:
    """Return ``text`` on one line, without HTML elements, links and pictures."""
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text).replace("](", r"]\(").replace("][", r"]\[").replace("\n", " ")
