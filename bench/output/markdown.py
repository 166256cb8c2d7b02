"""Markdown: a section with a pipe table."""

from collections.abc import Sequence

from headcount.bench.output.base import Collected


class Markdown(Collected):
    """A section with a pipe table of every column."""

    def end(self, notes_below: Sequence[str] = ()) -> None:
        """Everything, at once."""
        parts = [f"## {self.table.title}", *self.table.notes_above, self._table(), *self.below(notes_below)]
        self.stream.write("\n\n".join(parts) + "\n")
        self.stream.flush()

    def _table(self) -> str:
        from tabulate import tabulate

        columns = [self.style.dressed(column) for column in self.table.columns]
        cells = zip(*(self.column_cells(column) for column in columns), strict=True)
        return tabulate(
            [[_escaped(cell) for cell in row] for row in cells],
            headers=[_escaped(" ".join(column.head_lines)) for column in columns],
            tablefmt="pipe",
            colalign=[column.side for column in columns] if self.rows else None,
            disable_numparse=True,
        )


def _escaped(cell: str) -> str:
    return cell.replace("|", r"\|").replace("\n", " ")
