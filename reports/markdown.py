"""Small pieces of markdown."""

import io
from collections.abc import Sequence
from typing import Any

from headcount.bench.table import Column, Markdown, Table


def table(columns: Sequence[Column], rows: Sequence[dict[str, Any]], notes: Sequence[Sequence[str]] = ()) -> str:
    """A pipe table; ``notes`` are each row's footnotes, marked in the last column."""
    stream = io.StringIO()
    out = Markdown(stream)
    out.begin(Table("t", "t", columns, note_column=columns[-1].key if any(notes) else ""))
    for i, row in enumerate(rows):
        out.row(row, notes[i] if any(notes) else ())
    out.end()
    return stream.getvalue().partition("\n\n")[2].strip()


def section(title: str, *parts: str, level: int = 2) -> str:
    """A heading and its parts."""
    return "\n\n".join([f"{'#' * level} {title}", *(part for part in parts if part)])
