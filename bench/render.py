"""How tables are printed: a renderer for each format, and JSON."""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from headcount.bench.errors import UsageError
from headcount.bench.output.base import Renderer, Style
from headcount.bench.output.comma import Csv
from headcount.bench.output.files import ENDINGS, is_folder, made, open_output, write_json
from headcount.bench.output.latex import Latex
from headcount.bench.output.markdown import Markdown
from headcount.bench.output.progress import watched
from headcount.bench.output.text import Text
from headcount.bench.table import Section

__all__ = ["FORMATS", "Markdown", "Style", "deliver", "emit", "open_output", "renderer", "write_json"]

FORMATS = ("text", "md", "json", "csv", "latex")
SCHEMA_VERSION = 1
RENDERERS = {"text": Text, "md": Markdown, "csv": Csv, "latex": Latex}


def renderer(name: str, stream: TextIO, style: Style | None = None) -> Renderer:
    """The renderer called ``name``; UsageError with the valid names where there is none."""
    if name not in RENDERERS:
        raise UsageError(f"unknown format {name!r}; one of {', '.join(RENDERERS)}")
    return RENDERERS[name](stream, style or Style())


def emit(
    sections: Iterable[Section],
    form: str,
    stream: TextIO,
    style: Style | None = None,
    result: Callable[[Sequence[Section]], str] = lambda printed: "",
) -> list[Section]:
    """Print every section in ``form`` (one of FORMATS); the sections with all their rows, in order.

    ``result`` is a part of JSON: one sentence about what is printed. UsageError for more than one table in a CSV file.
    """
    if form == "json":
        printed = [realised(section) for section in sections]
        _write_json(printed, stream, result(printed))
        return printed
    if form == "csv":
        sections = one_of(sections)
    out, printed = renderer(form, stream, style), []
    for section in sections:
        rows = []
        out.print(section, _kept(section, rows))
        printed.append(replace(section, rows=rows))
    return printed


def one_of(sections: Iterable[Section]) -> list[Section]:
    """The one section that there is, before a row of it is made. UsageError where there are more."""
    sections = list(sections)
    if len(sections) > 1:
        names = ", ".join(section.table.name for section in sections)
        raise UsageError(f"a CSV file holds one table, not {names}; --out DIR/ writes a file for each")
    return sections


def fits(sections: Sequence[Section], form: str, path: str | None) -> None:
    """For who writes something beside tables, before that: UsageError where ``path`` cannot hold so many of them."""
    if form == "csv" and not (path and is_folder(path)):
        one_of(sections)


def deliver(
    sections: Iterable[Section],
    form: str,
    path: str | None,
    style: Callable[[TextIO], Style],
    result: Callable[[Sequence[Section]], str],
    ending: Callable[[TextIO, Style, Sequence[Section]], None],
) -> list[Section]:
    """:func:`emit` to stdout or to ``path``, in a folder to a file for each table, named as it is.

    ``ending`` is called after the last table, with the stream of all, or stdout where there is a file for each.
    UsageError where something cannot be written.
    """
    if path is None or not is_folder(path):
        with open_output(path) as stream:
            printed = emit(sections, form, stream, style(stream), result)
            ending(stream, style(stream), printed)
        return printed
    folder, printed = made(path), []
    for section in sections:
        with open_output(folder / f"{file_name(section)}{ENDINGS[form]}") as stream:
            printed += emit([section], form, stream, style(stream))
    ending(sys.stdout, style(sys.stdout), printed)
    return printed


def file_name(section: Section) -> str:
    """A table's name, fit for a file."""
    return "".join(c if c.isalnum() or c in "-_.," else "-" for c in Path(section.table.name).name)


def _kept(section: Section, rows: list) -> Iterable:
    """The rows of ``section``, which stay in ``rows``."""
    for row in watched(section.rows, section.table.name, "row"):
        rows.append(row)
        yield row


def realised(section: Section) -> Section:
    """``section`` with all its rows."""
    rows: list = []
    for _ in _kept(section, rows):
        pass
    return replace(section, rows=rows)


def _write_json(printed: Sequence[Section], stream: TextIO, result: str) -> None:
    tables = []
    for section in printed:
        records = [record for row in section.rows for record in row.records]
        facts = {**section.facts, "below": section.below}
        tables.append({"name": section.table.name, "title": section.table.title, **facts, "rows": records})
    said = {"result": result} if result else {}
    write_json(stream, {"schema_version": SCHEMA_VERSION, "tables": tables, **said})
