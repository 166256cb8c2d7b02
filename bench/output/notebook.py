"""A count as HTML of notebooks: modules that fold, and a bar for each share. In the colours of the page around it."""

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from headcount.bench.column import DASH, escape_controls

if TYPE_CHECKING:
    from headcount.bench.contractions.module_tree import ModuleRow
    from headcount.bench.result import Table

STYLE = """
.headcount { font: 13px/1.6 ui-monospace, monospace; max-width: 100%; overflow-x: auto }
.headcount summary, .headcount .row { display: grid; gap: 1em; white-space: nowrap;
  width: max-content; grid-template-columns: var(--columns) }
.headcount summary { cursor: pointer }
.headcount summary > span:first-child::before { content: "▸ " }
.headcount details[open] > summary > span:first-child::before { content: "▾ " }
.headcount .row > span:first-child::before { content: "\\00a0\\00a0" }
.headcount .number { text-align: right; font-variant-numeric: tabular-nums }
.headcount .head { opacity: .65; border-bottom: 1px solid currentColor }
.headcount .bar { text-align: right;
  background: linear-gradient(rgba(70, 130, 180, .4) 0 0) no-repeat left / var(--share) 100% }
"""
HEADS = ("module", "class", "output", "params", "MACs", "share")
INDENT, MARK, BAR = 2, 3, 14
"""Characters before a module for each level, those of the mark that folds it, and those of a bar."""


def page(printed: "Table[ModuleRow]", depth: int | None) -> str:
    """Return the table of a count's modules as an element that needs no script, unfolded ``depth`` levels, None: all.

    A column is as wide as its longest text, so that none is cut.
    """
    rows = list(printed.rows)
    head = "".join(f'<span class="{"number" if place > 2 else ""}">{name}</span>' for place, name in enumerate(HEADS))
    below = "<br>".join(escape(escape_controls(line)) for line in printed.below)
    return (
        f'<div class="headcount" style="--columns:{_columns(rows)}"><style>{STYLE}</style>'
        f"<strong>{escape(printed.title)}</strong>"
        f'<div class="row head">{head}</div>{"".join(_modules(rows, depth))}<p>{below}</p></div>'
    )


def _columns(rows: Sequence["ModuleRow"]) -> str:
    """Return the width of each column in characters."""
    widths = [MARK + len(HEADS[0]), *map(len, HEADS[1:])]
    for row in rows:
        module, *others = _texts(row)
        lengths = [MARK + INDENT * row.level + len(module), *map(len, others)]
        widths = [max(pair) for pair in zip(widths, lengths, strict=True)]
    widths[-1] = max(widths[-1], BAR)
    return " ".join(f"{width}ch" for width in widths)


def _modules(rows: Sequence["ModuleRow"], depth: int | None) -> Iterator[str]:
    """Yield the rows; one with rows of a higher level after it folds them."""
    place = 0
    while place < len(rows):
        row, end = rows[place], place + 1
        while end < len(rows) and rows[end].level > row.level:
            end += 1
        if end == place + 1:
            yield f'<div class="row">{_cells(row)}</div>'
        else:
            is_open = " open" * (depth is None or row.level < depth)
            inside = "".join(_modules(rows[place + 1 : end], depth))
            yield f"<details{is_open}><summary>{_cells(row)}</summary>{inside}</details>"
        place = end


def _texts(row: "ModuleRow") -> list[str]:
    """Return the text of each column of a row."""
    numbers = (DASH if number is None else f"{number:,}" for number in (row.params, row.macs))
    share = DASH if row.share is None else f"{float(row.share):.2f} %"
    return [*(escape_controls(text) for text in (row.module, row.type, row.output)), *numbers, share]


def _cells(row: "ModuleRow") -> str:
    """Return the cells of a row; its share is a bar too."""
    module, kind, output, params, macs, share = map(escape, _texts(row))
    width = 0 if row.share is None else float(row.share)
    return (
        f'<span style="padding-left:{INDENT * row.level}ch">{module}</span><span>{kind}</span><span>{output}</span>'
        f'<span class="number">{params}</span><span class="number">{macs}</span>'
        f'<span class="bar" style="--share:{width:.2f}%">{share}</span>'
    )
