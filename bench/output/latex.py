"""LaTeX: a table in booktabs style, no wider than the text, with a short caption and its notes below.

Widths are those of Computer Modern at the size of ``\\small``; TEXT_WIDTH is that of the class article.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from headcount.bench.output.base import Collected
from headcount.bench.output.layout import Layout, fit
from headcount.bench.table import DASH, Column

TEXT_WIDTH = 345.0
"""Points."""
GAP = 6.0
SIZE = 9.3
"""Points that the widths below are thousandths of: a little more than cmr9's."""
MOST_ROWS = 40
"""A table of more rows, or of so many lines of broken ones, may break across pages."""
PACKAGES = "% \\usepackage{booktabs,array,longtable}"

_CHARACTERS = {
    277: "!',.:;Iil[]|`", 306: "fj", 333: " -", 361: "_", 389: "()t", 393: "rs", 444: "cez", 472: "?", 528: "kvxyq",
    556: "bdhnpuS", 612: "LZ", 653: "F", 682: "EP", 709: "B", 723: "CTw", 737: "R", 751: "AHNUVXY", 764: "DO",
    779: "GKQ+=<>&@", 834: "m%#", 917: "M", 1028: "W",
}  # fmt: skip
_WIDTHS = {character: width for width, characters in _CHARACTERS.items() for character in characters}
OTHERS = 500
"""Digits, and what no list has."""
PER_CHARACTER = 4.65

_ESCAPED = {c: rf"\{c}" for c in "&%$#_{}"} | {
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
_PATTERN = re.compile("|".join(map(re.escape, sorted(_ESCAPED, key=len, reverse=True))))
_FORMULA = re.compile(r"\$.+\$")
_BREAKS = re.compile(r"(?<=[ ./_,=-])")


def escaped(text: str) -> str:
    """``text`` for TeX, every character printed as it is."""
    return _PATTERN.sub(lambda match: _ESCAPED[match[0]], text.replace("\n", " "))


def points(text: str) -> float:
    """What a text takes in a line; of a formula the letters that are printed, and room around its operators."""
    if _FORMULA.fullmatch(text):
        text = re.sub(r"\\[a-zA-Z]+|[{}$\\^]", "", text).replace(" ", "  ")
    return sum(_WIDTHS.get(c, OTHERS) for c in text) * SIZE / 1000


class Latex(Collected):
    """A table environment, or a longtable for many rows. A cell in dollar signs is one of a column of formulas."""

    totals: frozenset[int] = frozenset()
    """The places of rows that sum those above them."""

    def print(self, section, rows) -> None:
        """A whole section, with a rule above its totals."""
        self.totals = frozenset()
        super().print(section, self._noted(rows))

    def _noted(self, rows):
        for number, row in enumerate(rows):
            if row.total and number:
                self.totals |= {number}
            yield row

    def end(self, notes_below: Sequence[str] = ()) -> None:
        """Everything, at once."""
        layout = self._layout()
        notes = [*self.table.notes_above, *self.below(notes_below), *layout.says()]
        long = self._height(layout) > MOST_ROWS
        about = rf"\caption{{{escaped(self.table.title)}}}\label{{tab:{self.table.name}}}"
        head, body = self._head(layout), self._body(layout)
        kinds = "@{}" + "".join(map(_kind, layout.columns, layout.widths, self._broken(layout))) + "@{}"
        small = [r"\small\setlength{\tabcolsep}{3pt}"]
        if long:
            lines = [r"\begingroup", *small, rf"\begin{{longtable}}{{{kinds}}}", rf"{about}\\"]
            lines += [r"\toprule", *head, r"\midrule\endhead", r"\bottomrule\endfoot", *body, r"\end{longtable}"]
            lines += [*_notes(notes), r"\par\endgroup"]
        else:
            lines = [r"\begin{table}", about, r"\centering", *small, rf"\begin{{tabular}}{{{kinds}}}", r"\toprule"]
            lines += [*head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"]
            if notes:
                lines += ["", r"\medskip", r"\begin{minipage}{\linewidth}", *_notes(notes), r"\end{minipage}"]
            lines += [r"\end{table}"]
        self.stream.write("\n".join([PACKAGES, *lines]) + "\n")
        self.stream.flush()

    def _layout(self) -> Layout:
        note = self.table.note_column
        columns = [
            replace(c, wraps=int(c.wraps * PER_CHARACTER), priority=0 if c.key == note else c.priority)
            for c in self.table.columns
        ]
        room = None if self.style.wide else TEXT_WIDTH
        return fit(columns, self.style, room, GAP, self._points, self.largest, self._word)

    def _texts(self, column: Column) -> list[str]:
        return [*column.head_lines, *self.column_cells(column)]

    def _points(self, column: Column) -> float:
        return max(map(points, self._texts(column)))

    def _word(self, column: Column) -> float:
        """The widest part of a text that is not broken."""
        return max(points(part) for text in self._texts(column) for part in _BREAKS.split(text))

    def _broken(self, layout: Layout) -> list[bool]:
        return [width < self._points(c) for c, width in zip(layout.columns, layout.widths, strict=True)]

    def _height(self, layout: Layout) -> float:
        """How many lines the rows take, where a broken text takes a little more than its own length."""
        heights = [1.0] * len(self.rows)
        for column, width in zip(layout.columns, layout.widths, strict=True):
            lines = [1.3 * points(text) / width if points(text) > width else 1.0 for text in self.column_cells(column)]
            heights = list(map(max, heights, lines))
        return sum(heights)

    def _head(self, layout: Layout) -> list[str]:
        heads = [column.head_lines for column in layout.columns]
        height = max(map(len, heads))
        lines = zip(*([""] * (height - len(head)) + head for head in heads), strict=True)
        return [" & ".join(map(escaped, line)) + r" \\" for line in lines]

    def _body(self, layout: Layout) -> list[str]:
        broken = self._broken(layout)
        cells = [
            [_cell(text, parted, column.formula) for text in self.column_cells(column)]
            for column, parted in zip(layout.columns, broken, strict=True)
        ]
        lines = [" & ".join(row) + r" \\" for row in zip(*cells, strict=True)]
        return [rf"\midrule {line}" if i in self.totals else line for i, line in enumerate(lines)]


def _cell(text: str, parted: bool, formula: bool) -> str:
    if formula and _FORMULA.fullmatch(text):
        return text
    parts = _BREAKS.split(text) if parted else [text]
    return r"\allowbreak{}".join(map(escaped, parts))


def _kind(column: Column, width: float, broken: bool) -> str:
    if broken:
        return rf">{{\raggedright\arraybackslash}}p{{{width:.1f}pt}}"
    return column.side[0]


def _notes(notes: Sequence[str]) -> list[str]:
    return [r"\footnotesize\raggedright", *(rf"{escaped(note)}\par" for note in notes)] if notes else []
