"""How tables are printed: a renderer for each format, and JSON."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from headcount.bench.errors import UsageError
from headcount.bench.output.base import Style
from headcount.bench.output.comma import Csv
from headcount.bench.output.files import ENDINGS, ensure_dir, is_folder, open_output, write_json
from headcount.bench.output.latex import Latex
from headcount.bench.output.markdown import Markdown
from headcount.bench.output.progress import watched
from headcount.bench.output.text import Text
from headcount.bench.table import Row, Section

__all__ = ["FORMATS", "Markdown", "Style", "emit", "open_output", "write_json", "write_sections"]

FORMATS = ("text", "md", "json", "csv", "latex")
SCHEMA_VERSION = 1
RENDERERS = {"text": Text, "md": Markdown, "csv": Csv, "latex": Latex}


def emit(
    sections: Iterable[Section],
    form: str,
    stream: TextIO,
    style: Style | None = None,
    result: Callable[[Sequence[Section]], str] = lambda printed: "",
) -> list[Section]:
    """Print every section in ``form`` (one of FORMATS) and return the sections with all their rows.

    ``result`` returns one sentence about what is printed, which is a part of JSON. Raises UsageError for more than one
    table in a CSV file.
    """
    if form == "json":
        printed = [realised(section) for section in sections]
        _write_json(printed, stream, result(printed))
        return printed
    if form == "csv":
        sections = one_of(sections)
    out, printed = RENDERERS[form](stream, style or Style()), []
    for section in sections:
        rows = []
        out.print(section, _kept(section, rows))
        printed.append(replace(section, rows=rows))
    return printed


def one_of(sections: Iterable[Section]) -> list[Section]:
    """Return the only section, before any of its rows is made. Raises UsageError where there are more."""
    sections = list(sections)
    if len(sections) > 1:
        names = ", ".join(section.table.name for section in sections)
        raise UsageError(f"a CSV file holds one table, not {names}; --out DIR/ writes a file for each")
    return sections


def fits(sections: Sequence[Section], form: str, path: str | None) -> None:
    """Raise UsageError where ``path`` cannot hold so many tables, before anything else is written."""
    if form == "csv" and not (path and is_folder(path)):
        one_of(sections)


def write_sections(
    sections: Iterable[Section],
    form: str,
    path: str | None,
    style: Callable[[TextIO], Style],
    result: Callable[[Sequence[Section]], str],
    ending: Callable[[TextIO, Style, Sequence[Section]], None],
) -> list[Section]:
    """Print the sections to stdout or to ``path``; to a folder one file for each table, named after it.

    ``ending`` is called after the last table with the stream of all tables, or with stdout where each has a file.
    Raises UsageError where something cannot be written.
    """
    if path is None or not is_folder(path):
        with open_output(path) as stream:
            printed = emit(sections, form, stream, style(stream), result)
            ending(stream, style(stream), printed)
        return printed
    folder, printed = ensure_dir(path), []
    for section in sections:
        with open_output(folder / f"{file_name(section)}{ENDINGS[form]}") as stream:
            printed += emit([section], form, stream, style(stream))
    ending(sys.stdout, style(sys.stdout), printed)
    return printed


def file_name(section: Section) -> str:
    """Return a table's name as a file name."""
    return "".join(c if c.isalnum() or c in "-_.," else "-" for c in Path(section.table.name).name)


def _kept(section: Section, rows: list[Row]) -> Iterator[Row]:
    """Yield the rows of ``section`` and append them to ``rows``."""
    for row in watched(section.rows, section.table.name, "row"):
        rows.append(row)
        yield row


def realised(section: Section) -> Section:
    """Return ``section`` with its rows as a list."""
    return replace(section, rows=list(watched(section.rows, section.table.name, "row")))


def _write_json(printed: Sequence[Section], stream: TextIO, result: str) -> None:
    tables = []
    for section in printed:
        records = [record for row in section.rows for record in row.records]
        facts = {**section.facts, "below": section.below}
        tables.append({"name": section.table.name, "title": section.table.title, **facts, "rows": records})
    last = {"result": result} if result else {}
    write_json(stream, {"schema_version": SCHEMA_VERSION, "tables": tables, **last})
