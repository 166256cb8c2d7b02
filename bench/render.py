"""How tables are printed: a renderer for each format, JSON, and the file that output goes to."""

import csv
import json
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from headcount.bench.errors import UsageError
from headcount.bench.table import DASH, Section, Table

FORMATS = ("text", "md", "json", "csv", "latex")
SCHEMA_VERSION = 1


def emit(sections: Iterable[Section], form: str, stream: TextIO) -> list[str]:
    """Print every section in ``form`` (one of FORMATS); the failures of all rows, in order."""
    return _emit_json(sections, stream) if form == "json" else _emit_tables(sections, form, stream)


def _emit_tables(sections, form, stream):
    out, failures = renderer(form, stream), []
    for section in sections:
        out.begin(section.table)
        for row in section.rows:
            out.row(row.values, row.notes)
            failures += row.failures
        out.end(section.below)
    return failures


def _emit_json(sections, stream):
    tables, failures = [], []
    for section in sections:
        records = []
        for row in section.rows:
            records += row.records
            failures += row.failures
        facts = {**section.facts, "below": section.below}
        tables.append({"name": section.table.name, "title": section.table.title, **facts, "rows": records})
    write_json(stream, {"schema_version": SCHEMA_VERSION, "tables": tables})
    return failures


@dataclass
class Renderer:
    """Writes tables to a stream: ``begin(table)``, ``row(values, notes)`` per row, ``end(notes_below)``.

    ``values`` maps column keys to raw values; keys without a column are ignored, a missing key is a KeyError.
    ``notes`` are footnote texts of the row; equal texts share a number, which starts at 1 in every table.
    """

    stream: TextIO
    table: Table | None = field(default=None, init=False)
    footnotes: list[str] = field(default_factory=list, init=False)
    tables: int = field(default=0, init=False)

    def begin(self, table: Table) -> None:
        if self.tables:
            self.stream.write("\n")
        self.tables += 1
        self.table, self.footnotes = table, []

    def cells(self, values: Mapping[str, Any], notes: Sequence[str]) -> list[str]:
        """The printed cells of a row, marks included; notes without a column for them are a ValueError."""
        if notes and not self.table.note_column:
            raise ValueError(f"table {self.table.name!r} has no column for notes")
        for note in notes:
            if note not in self.footnotes:
                self.footnotes.append(note)
        marks = "".join(f" [{number}]" for number in sorted({self.footnotes.index(n) + 1 for n in notes}))
        return [
            column.text(values[column.key]) + (marks if column.key == self.table.note_column else "")
            for column in self.table.columns
        ]

    def below(self, notes_below: Sequence[str]) -> list[str]:
        """The numbered footnotes, then the notes without a number."""
        return [*(f"[{i}] {note}" for i, note in enumerate(self.footnotes, 1)), *notes_below]


NOTE_WIDTH = 120
"""Where the text renderer breaks the lines of a note."""


def _wrapped(note: str) -> str:
    return textwrap.fill(note, NOTE_WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


class Text(Renderer):
    """Plain text of fixed widths, row by row."""

    def begin(self, table: Table) -> None:
        super().begin(table)
        self._lines(table.title, *map(_wrapped, table.notes_above), "")
        heads = [column.head_lines for column in table.columns]
        height = max(map(len, heads))
        for line in zip(*([""] * (height - len(lines)) + lines for lines in heads), strict=True):
            self._line(line)
        self._rule()
        self.stream.flush()

    def row(self, values: Mapping[str, Any], notes: Sequence[str] = ()) -> None:
        self._line(self.cells(values, notes))
        self.stream.flush()

    def end(self, notes_below: Sequence[str] = ()) -> None:
        self._rule()
        self._lines(*map(_wrapped, self.below(notes_below)))
        self.stream.flush()

    def _line(self, cells: Sequence[str]) -> None:
        padded = [
            cell.rjust(column.text_width) if column.side == "right" else cell.ljust(column.text_width)
            for column, cell in zip(self.table.columns, cells, strict=True)
        ]
        self._lines("  ".join(padded).rstrip())

    def _rule(self) -> None:
        self._lines("  ".join("-" * column.text_width for column in self.table.columns))

    def _lines(self, *lines: str) -> None:
        self.stream.writelines(f"{line}\n" for line in lines)


class _Collected(Renderer):
    """A renderer that needs all rows of a table before it writes them."""

    def begin(self, table: Table) -> None:
        super().begin(table)
        self.rows = []

    def row(self, values: Mapping[str, Any], notes: Sequence[str] = ()) -> None:
        self.rows.append(self.cells(values, notes))

    def tabulated(self, tablefmt: str, escape) -> str:
        from tabulate import tabulate

        return tabulate(
            [[escape(cell) for cell in row] for row in self.rows],
            headers=[escape(" ".join(column.head_lines)) for column in self.table.columns],
            tablefmt=tablefmt,
            colalign=[column.side for column in self.table.columns] if self.rows else None,
            disable_numparse=True,
        )


class Markdown(_Collected):
    """A section with a pipe table."""

    def cells(self, values: Mapping[str, Any], notes: Sequence[str]) -> list[str]:
        coded = {column.key: code(values[column.key]) for column in self.table.columns if column.code}
        return super().cells({**values, **coded}, notes)

    def end(self, notes_below: Sequence[str] = ()) -> None:
        table = self.tabulated("pipe", lambda cell: cell.replace("|", r"\|").replace("\n", " "))
        parts = [f"## {self.table.title}", *self.table.notes_above, table, *self.below(notes_below)]
        self.stream.write("\n\n".join(parts) + "\n")
        self.stream.flush()


def code(text: str | None) -> str | None:
    """``text`` as code in markdown, also in a table: nothing of it is markup, a link, a reference or a mention."""
    if not text or re.fullmatch(r"[\w.*,:/=> -]*[\w*]", text, re.ASCII):
        return text and f"`{text}`"
    shown = (letter if letter.isprintable() else "\ufffd" for letter in text)
    return f"<code>{''.join(x if x.isalnum() or x == ' ' else f'&#{ord(x)};' for x in shown)}</code>"


class Latex(_Collected):
    """A table environment in booktabs style; notes above go into the caption. A cell in dollar signs is a formula."""

    def end(self, notes_below: Sequence[str] = ()) -> None:
        formulas: list[str] = []

        def plain(cell: str) -> str:
            if not re.fullmatch(r"\$.+\$", cell):
                return cell.replace("\n", " ")
            formulas.append(cell)
            return f"formula-{len(formulas)}-"

        # tabulate escapes the characters of TeX in cells, but knows no dash.
        tabular = self.tabulated("latex_booktabs", plain).replace(DASH, "--")
        for number, formula in enumerate(formulas, 1):
            tabular = tabular.replace(f"formula-{number}-", formula)
        notes = "".join(f" {_latex(note)}" for note in self.table.notes_above)
        caption = _latex(self.table.title) + (f".{notes}" if notes else "")
        lines = [
            r"\begin{table}",
            rf"\caption{{{caption}}}",
            rf"\label{{tab:{self.table.name}}}",
            tabular,
            *(rf"\par {_latex(note)}" for note in self.below(notes_below)),
            r"\end{table}",
        ]
        self.stream.write("\n".join(lines) + "\n")
        self.stream.flush()


_LATEX = {c: rf"\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    DASH: "--",
}


def _latex(text: str) -> str:
    return re.sub("|".join(map(re.escape, _LATEX)), lambda match: _LATEX[match[0]], text)


class Csv(Renderer):
    """Raw numbers under the columns' keys, unknown ones as empty fields; notes in a last column."""

    def begin(self, table: Table) -> None:
        super().begin(table)
        self.writer = csv.writer(self.stream, lineterminator="\n")
        self.writer.writerow([column.key for column in table.columns] + ["notes"] * bool(table.note_column))

    def row(self, values: Mapping[str, Any], notes: Sequence[str] = ()) -> None:
        self.cells(values, notes)
        raw = [values[column.key] for column in self.table.columns]
        self.writer.writerow(raw + ["; ".join(notes)] * bool(self.table.note_column))
        self.stream.flush()

    def end(self, notes_below: Sequence[str] = ()) -> None:
        self.stream.flush()


RENDERERS = {"text": Text, "md": Markdown, "csv": Csv, "latex": Latex}


def renderer(name: str, stream: TextIO) -> Renderer:
    """The renderer called ``name``; UsageError with the valid names where there is none."""
    if name not in RENDERERS:
        raise UsageError(f"unknown format {name!r}; one of {', '.join(RENDERERS)}")
    return RENDERERS[name](stream)


def write_json(stream: TextIO, payload: Any) -> None:
    """JSON that is the same for the same payload, in its own order; ValueError for NaN and infinity."""
    stream.write(json.dumps(payload, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    stream.flush()


@contextmanager
def open_output(path: str | Path | None) -> Iterator[TextIO]:
    """A stream to stdout for None, else to a file that appears, complete, only when the block succeeds.

    Until then it is a temporary file beside it, removed on any exception; an older file stays. Raises
    UsageError where the path cannot be written. Errors of the block, a broken pipe too, pass through.
    """
    if path is None:
        yield sys.stdout
        return
    target = Path(os.path.realpath(path))
    # A device or a pipe cannot be replaced.
    direct = target.exists() and not target.is_file()
    opened = target if direct else target.with_name(f".{target.name}.{os.getpid()}.tmp")
    with _usable(path):
        stream = open(opened, "w" if direct else "x", encoding="utf-8", newline="")
    try:
        with stream:
            yield stream
        if not direct:
            with _usable(path):
                opened.replace(target)
    except BaseException:
        if not direct:
            opened.unlink(missing_ok=True)
        raise


@contextmanager
def _usable(path: str | Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
