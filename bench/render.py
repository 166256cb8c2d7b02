"""Print tables: a renderer for each format, and JSON."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from headcount.bench.errors import UsageError
from headcount.bench.output.csv_format import Csv
from headcount.bench.output.files import ENDINGS, ensure_dir, is_folder, open_output
from headcount.bench.output.latex import Latex
from headcount.bench.output.layout import Style
from headcount.bench.output.markdown import Markdown
from headcount.bench.output.progress import with_progress
from headcount.bench.output.text import Text, wrap_note
from headcount.bench.table import Section, escape_controls

FORMATS = tuple(ENDINGS)
SCHEMA_VERSION = 1
RENDERERS = {"text": Text, "md": Markdown, "csv": Csv, "latex": Latex}


def emit(
    sections: Iterable[Section],
    form: str,
    stream: TextIO,
    style: Style | None = None,
    result: Callable[[Sequence[Section]], str] = lambda sections: "",
    brief: bool = False,
) -> list[Section]:
    """Print sections in ``form`` (one of FORMATS) and return all of them with all their rows.

    ``result`` returns one sentence about the sections, which is a part of JSON and the last line of text. ``brief``
    leaves out sections of details, but not of JSON. Raises UsageError for more than one table in a CSV file.
    """
    if form == "json":
        sections = [realised(section) for section in sections]
        _write_json(sections, stream, result(sections))
        return sections
    if form == "csv":
        sections = list(sections)
        fits([section for section in sections if not (brief and section.detail)], form)
    out = RENDERERS[form](stream, style or Style())
    printed = [realised(section) if brief and section.detail else out.print(section) for section in sections]
    if form == "text" and (line := result(printed)):
        stream.write("\n" * bool(printed) + wrap_note(escape_controls(line), out.style.note_width) + "\n")
        stream.flush()
    return printed


def fits(sections: Sequence[Section], form: str, path: str | None = None) -> None:
    """Raise UsageError where a CSV file would hold several tables, before any of their rows is made."""
    if form == "csv" and len(sections) > 1 and not (path and is_folder(path)):
        names = ", ".join(section.table.name for section in sections)
        raise UsageError(f"a CSV file holds one table, not {names}; --out DIR/ writes a file for each")


def write_folder(
    sections: Iterable[Section], form: str, path: str, style: Callable[[TextIO], Style], brief: bool
) -> list[Section]:
    """Write a file for each table, named after it, and return the sections with all their rows.

    Raises UsageError where something cannot be written.
    """
    written = []
    for section in sections:
        if brief and section.detail:
            written.append(realised(section))
            continue
        with open_output(ensure_dir(path) / f"{file_name(section)}{ENDINGS[form]}") as stream:
            written += emit([section], form, stream, style(stream))
    return written


def file_name(section: Section) -> str:
    """Return a table's name as a file name."""
    return "".join(c if c.isalnum() or c in "-_.," else "-" for c in Path(section.table.name).name)


def realised(section: Section) -> Section:
    """Return ``section`` with its rows as a list."""
    return replace(section, rows=list(with_progress(section.rows, section.table.name, "row")))


def _write_json(sections: Sequence[Section], stream: TextIO, result: str) -> None:
    tables = []
    for section in sections:
        records = [record for row in section.rows for record in row.records]
        facts = {**section.facts, "below": section.below}
        tables.append({"name": section.table.name, "title": section.table.title, **facts, "rows": records})
    payload = {"schema_version": SCHEMA_VERSION, "tables": tables} | ({"result": result} if result else {})
    stream.write(json.dumps(payload, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    stream.flush()
