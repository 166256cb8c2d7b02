"""Markdown: a section with a pipe table."""

import re
from collections.abc import Sequence

from headcount.bench.output.base import Collected
from headcount.bench.table import Column, shown


class Markdown(Collected):
    """A section with a pipe table of every column."""

    def end(self, notes_below: Sequence[str] = ()) -> None:
        """Everything, at once."""
        above, below = (list(map(_plain, said)) for said in (self.table.notes_above, self.below(notes_below)))
        parts = [f"## {_plain(self.table.title)}", *above, self._table(), *below]
        self.stream.write("\n\n".join(parts) + "\n")
        self.stream.flush()

    def _table(self) -> str:
        from tabulate import tabulate

        columns = [self.style.dressed(column) for column in self.table.columns]
        cells = zip(*(self._column(column) for column in columns), strict=True)
        return tabulate(
            [list(row) for row in cells],
            headers=[_escaped(" ".join(column.head_lines)) for column in columns],
            tablefmt="pipe",
            colalign=[column.side for column in columns] if self.rows else None,
            disable_numparse=True,
        )

    def _column(self, column: Column) -> list[str]:
        cells = self.column_cells(column)
        if not column.code:
            return [_escaped(cell) for cell in cells]
        texts = [values[column.key] for values, _ in self.rows]
        return [
            code(text) + cell.removeprefix(shown(text)) if text else cell
            for text, cell in zip(texts, cells, strict=True)
        ]


def code(text: str) -> str:
    """``text`` as code in markdown, also in a table: nothing of it is markup, a link, a reference or a mention."""
    if re.fullmatch(r"[\w.*,:/=> -]*[\w*]", text, re.ASCII):
        return f"`{text}`"
    shown = (letter if letter.isprintable() else "\ufffd" for letter in text)
    return f"<code>{''.join(x if x.isalnum() or x == ' ' else f'&#{ord(x)};' for x in shown)}</code>"


def _escaped(cell: str) -> str:
    return _plain(cell).replace("|", r"\|")


def _plain(text: str) -> str:
    """``text`` on one line, with no element of HTML in it, and no link or picture."""
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text).replace("](", r"]\(").replace("][", r"]\[").replace("\n", " ")
