"""Small pieces of markdown."""

import io
from collections.abc import Sequence
from typing import Any

from headcount.bench.render import Markdown, emit
from headcount.bench.table import Column, Section, Table


def table(columns: Sequence[Column], rows: Sequence[dict[str, Any]], notes: Sequence[Sequence[str]] = ()) -> str:
    """A pipe table; ``notes`` are each row's footnotes, marked in the last column."""
    stream = io.StringIO()
    out = Markdown(stream)
    out.begin(Table("t", "t", columns, note_column=columns[-1].key if any(notes) else ""))
    for i, row in enumerate(rows):
        out.row(row, notes[i] if any(notes) else ())
    out.end()
    return stream.getvalue().partition("\n\n")[2].strip()


def rows_of(section: Section, code: str = "") -> str:
    """A section's table alone, with its footnotes and what stands below it; the column ``code`` is set as code."""
    stream = io.StringIO()
    out = Markdown(stream)
    out.begin(Table("t", "t", section.table.columns, note_column=section.table.note_column))
    for row in section.rows:
        out.row({key: f"`{value}`" if key == code else value for key, value in row.values.items()}, row.notes)
    out.end(section.below)
    return stream.getvalue().partition("\n\n")[2].strip()


def whole(sections: Sequence[Section], level: int = 3) -> str:
    """Sections as the commands print them, under headings of this level."""
    stream = io.StringIO()
    emit(sections, "md", stream)
    return stream.getvalue().strip().replace("## ", f"{'#' * level} ")


def section(title: str, *parts: str, level: int = 2) -> str:
    """A heading and its parts."""
    return "\n\n".join([f"{'#' * level} {title}", *(part for part in parts if part)])
