"""Markdown: a heading with a pipe table."""

import re
from collections.abc import Iterator

from headcount.bench.column import Column, escape_controls
from headcount.bench.output.renderer import Renderer
from headcount.bench.result import Row


class Markdown(Renderer):
    """Write a heading with a pipe table of every column."""

    def write(self, rows: Iterator[Row]) -> None:
        from tabulate import tabulate

        columns = [self.style.adapt(column) for column in self.table.columns]
        cells = [[self._cell(column, row) for column in columns] for row in rows]
        table = tabulate(
            cells,
            headers=[_escape(" ".join(column.head_lines)) for column in columns],
            tablefmt="pipe",
            colalign=[column.side for column in columns] if cells else None,
            disable_numparse=True,
        )
        above, below = (list(map(_plain, notes)) for notes in (self.table.above, self.below()))
        self.stream.write("\n\n".join([f"## {_plain(self.table.title)}", *above, table, *below]) + "\n")

    def _cell(self, column: Column, row: Row) -> str:
        cell, text = self.cell(column, row), column.read(row)
        return code(text) + cell.removeprefix(escape_controls(text, kept="")) if column.code and text else _escape(cell)


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
