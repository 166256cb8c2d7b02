"""Print tables: a renderer for each format, and JSON."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from headcount.bench.column import escape_controls
from headcount.bench.errors import UsageError
from headcount.bench.output.csv_format import Csv
from headcount.bench.output.files import ENDINGS, ensure_dir, is_folder, open_output
from headcount.bench.output.latex import Latex
from headcount.bench.output.layout import Style
from headcount.bench.output.markdown import Markdown
from headcount.bench.output.progress import with_progress
from headcount.bench.output.renderer import Renderer
from headcount.bench.output.text import Text, wrap_note
from headcount.bench.result import Table, to_json

FORMATS = tuple(ENDINGS)
SCHEMA_VERSION = 2
RENDERERS: dict[str, Callable[..., Renderer]] = {
    "text": Text,
    "md": Markdown,
    "csv": Csv,
    "latex": Latex,
}


def emit(
    tables: Iterable[Table],
    form: str,
    stream: TextIO,
    style: Style | None = None,
    sentence: Callable[[], str] = lambda: "",
    brief: bool = False,
) -> list[Table]:
    """Print tables in ``form`` (one of FORMATS) and return all of them with all their rows.

    ``sentence`` is called after the last row, and returns a part of JSON and the last line of text. ``brief`` prints
    that line alone in text, and leaves tables of details out of markdown, CSV and LaTeX. Raises UsageError for more
    than one table in a CSV file.
    """
    if form == "json":
        tables = [realised(table) for table in tables]
        _write_json(tables, stream, sentence())
        return tables
    if form == "text" and brief:
        tables = [realised(table) for table in tables]
        if line := sentence():
            stream.write(escape_controls(line, kept="\n") + "\n")
            return tables
    if form == "csv":
        tables = list(tables)
        # a file of details alone has them
        brief = brief and not all(table.detail for table in tables)
        fits([table for table in tables if not (brief and table.detail)], form)
    out = RENDERERS[form](stream, style or Style())
    printed = [realised(table) if brief and table.detail else out.print(table) for table in tables]
    if form == "text" and (line := sentence()):
        has_tables = any(not (brief and table.detail) for table in printed)
        lines = escape_controls(line, kept="\n").split("\n")
        wrapped = "\n".join(wrap_note(one, out.style.note_width) for one in lines)
        stream.write("\n" * has_tables + wrapped + "\n")
        stream.flush()
    return printed


def fits(tables: Sequence[Table], form: str, path: str | None = None) -> None:
    """Raise UsageError where a CSV file would hold several tables, before any of their rows is made."""
    if form == "csv" and len(tables) > 1 and not (path and is_folder(path)):
        names = ", ".join(table.name for table in tables)
        raise UsageError(f"a CSV file holds one table, not {names}; --out DIR/ writes a file for each")


def write_folder(
    tables: Iterable[Table], form: str, path: str, style: Callable[[TextIO], Style], brief: bool
) -> list[Table]:
    """Write a file for each table, named after it, and return the tables with all their rows.

    Raises UsageError where something cannot be written.
    """
    written = []
    for table in tables:
        if brief and table.detail:
            written.append(realised(table))
            continue
        with open_output(ensure_dir(path) / f"{file_name(table)}{ENDINGS[form]}") as stream:
            written += emit([table], form, stream, style(stream))
    return written


def file_name(table: Table) -> str:
    """Return a table's name as a file name."""
    return "".join(c if c.isalnum() or c in "-_.," else "-" for c in Path(table.name).name)


def realised(table: Table) -> Table:
    """Return ``table`` with its rows as a list."""
    return replace(table, rows=list(with_progress(table.rows, f"{table.name}, row")))


def _write_json(tables: Sequence[Table], stream: TextIO, sentence: str) -> None:
    found = []
    for table in tables:
        rows = [to_json(row) for row in table.rows]
        facts = {**to_json(table.facts), "below": list(table.below)}
        found.append({"name": table.name, "title": table.title, **facts, "rows": rows})
    payload = {"schema_version": SCHEMA_VERSION, "tables": found} | ({"result": sentence} if sentence else {})
    stream.write(json.dumps(payload, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    stream.flush()
