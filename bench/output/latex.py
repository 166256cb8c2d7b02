"""LaTeX: a table in booktabs style, with a short caption and its notes below."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from math import ceil

from headcount.bench.column import DASH
from headcount.bench.output.renderer import Renderer, heading_rows
from headcount.bench.result import Row

WIDTH = 100
"""The columns of a table are those of a text table of so many characters."""
MOST_LINES = 40
"""A table with more lines of cells and notes may break across pages: a float is one page at most."""
NOTE_WIDTH = 110
"""Characters of a line of notes."""
PACKAGES = "% \\usepackage{array,booktabs,graphicx,longtable}"

ESCAPES = {c: rf"\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<=": r"$\le$",
    ">=": r"$\ge$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "--": "-{}-",
    DASH: "--",
    "…": r"\dots{}",
    "×": r"$\times$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "−": "$-$",
    "·": r"$\cdot$",
    "²": "$^2$",
    "→": r"$\to$",
}
# the longer ones first
_PATTERN = re.compile("|".join(map(re.escape, sorted(ESCAPES, key=len, reverse=True))))
_FORMULA = re.compile(r"\$.+\$")
_BREAKS = re.compile(r"(?<=[./_=-])(?! )")
_WORDS = re.compile(r"(?<=,)(?! )")
"""Where a line of a cell may end, without and with commas."""


def escape(text: str) -> str:
    """Return ``text`` for TeX, every character printed as it is."""
    return _PATTERN.sub(lambda match: ESCAPES[match[0]], text.replace("\n", " "))


class Latex(Renderer):
    """Write a table environment, scaled down to the text width, or a longtable for many rows.

    A cell in dollar signs is a formula where its column has formulas.
    """

    def write(self, rows: Iterator[Row]) -> None:
        rows = list(rows)
        self.style = replace(self.style, width=WIDTH)
        layout = self.fit(rows)
        columns = list(zip(layout.columns, layout.widths, strict=True))
        heights = [[len(self.lines(column, width, row)) for row in rows] for column, width in columns]
        is_broken = [max(height, default=1) > 1 for height in heights]
        types = ""
        for (column, width), split in zip(columns, is_broken, strict=True):
            pieces = [len(piece) for row in rows for piece in _pieces(self.cell(column, row))]
            types += _paragraph(max(width, *pieces)) if split else column.side[0]
        head = _head(heading_rows(layout.columns))
        body = []
        for number, row in enumerate(rows):
            cells = (
                _cell(self.cell(c, row), split, c.formula) for c, split in zip(layout.columns, is_broken, strict=True)
            )
            body.append(r"\midrule " * (row.total and number > 0) + _line(cells))
        about = rf"\caption{{{escape(self.table.title)}}}\label{{tab:{self.table.name}}}"
        notes = [rf"{escape(note)}\par" for note in (*self.table.above, *self.below(), *layout.notes)]
        lines_of_notes = sum(ceil(len(note) / NOTE_WIDTH) for note in notes)
        if notes:
            notes.insert(0, r"\footnotesize\raggedright")
        if sum(map(max, zip(*heights, strict=True))) + lines_of_notes > MOST_LINES:
            lines = [
                r"\begingroup",
                r"\scriptsize\setlength{\tabcolsep}{2pt}",
                r"\setlength{\LTleft}{0pt plus 1fill minus 1fill}\setlength{\LTright}{\LTleft}",
                rf"\begin{{longtable}}{{@{{}}{types}@{{}}}}",
                rf"{about}\\",
                r"\toprule", *head, r"\midrule\endhead", r"\bottomrule\endfoot", *body,
                r"\end{longtable}",
                *notes,
                r"\par\endgroup",
            ]  # fmt: skip
        else:
            below = ["", r"\medskip", r"\begin{minipage}{\linewidth}", *notes, r"\end{minipage}"] if notes else []
            lines = [
                r"\begin{table}",
                about,
                r"\centering",
                r"\small\setlength{\tabcolsep}{3pt}",
                r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
                rf"\begin{{tabular}}{{@{{}}{types}@{{}}}}",
                r"\toprule", *head, r"\midrule", *body, r"\bottomrule",
                r"\end{tabular}}",
                *below,
                r"\end{table}",
            ]  # fmt: skip
        self.stream.write("\n".join([PACKAGES, *lines]) + "\n")


def _line(cells: Iterable[str]) -> str:
    line = " & ".join(cells) + r" \\"
    # After the end of a line or a rule TeX takes these for its arguments.
    return "{}" * line.startswith(("*", "[")) + line


def _head(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a head; what several columns begin with stands once, over a rule as wide as they are."""
    first, *others = lines
    cells, rules = [], []
    end = 0
    for text, group in groupby(first):
        start, end = end + 1, end + len(list(group))
        columns = end - start + 1
        if others and text and columns > 1:
            cells.append(rf"\multicolumn{{{columns}}}{{c}}{{{escape(text)}}}")
            rules.append(rf"\cmidrule(lr){{{start}-{end}}}")
        else:
            cells += [escape(text)] * columns
    return [_line(cells) + "".join(f" {rule}" for rule in rules), *(_line(map(escape, line)) for line in others)]


def _cell(text: str, is_broken: bool, formula: bool) -> str:
    if formula and _FORMULA.fullmatch(text):
        return text
    words = text.lstrip(" ")
    # a level of a tree is two spaces, which TeX drops
    levels, rest = divmod(len(text) - len(words), 2)
    indent = r"\quad " * levels + r"\enspace " * rest
    return indent + r"\allowbreak{}".join(map(escape, _pieces(words) if is_broken else [words]))


def _pieces(text: str) -> list[str]:
    """Return the pieces of a cell between which a line may end: words of sizes, moa:K=8,E=32, stay whole."""
    return (_WORDS if "," in text else _BREAKS).split(text)


def _paragraph(width: int) -> str:
    """Return a column of lines of ``width`` characters, half an em, a digit's width, each."""
    return rf">{{\raggedright\arraybackslash}}p{{{width / 2}em}}"
