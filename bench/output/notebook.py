"""A count as HTML of notebooks: modules that fold, and a bar for each share. In the colours of the page around it."""

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from headcount.bench.column import DASH, escape_controls

if TYPE_CHECKING:
    from headcount.bench.contractions.module_tree import ModuleRow
    from headcount.bench.result import Table

OPEN = 2
"""Levels of modules that are unfolded at first."""
STYLE = """
.headcount { font: 13px/1.6 ui-monospace, monospace; max-width: 80em; overflow-x: auto }
.headcount summary, .headcount .row { display: grid; gap: 1em; white-space: nowrap;
  grid-template-columns: minmax(16em, 3fr) minmax(16em, 2fr) minmax(7em, 1fr) 8em 10em 9em }
.headcount summary { cursor: pointer }
.headcount summary > span:first-child::before { content: "▸ " }
.headcount details[open] > summary > span:first-child::before { content: "▾ " }
.headcount .row > span:first-child::before { content: "\\00a0\\00a0" }
.headcount .number { text-align: right; font-variant-numeric: tabular-nums }
.headcount .head { opacity: .65; border-bottom: 1px solid currentColor }
.headcount .bar { text-align: right;
  background: linear-gradient(rgba(70, 130, 180, .4) 0 0) no-repeat left / var(--share) 100% }
.headcount span { overflow: hidden; text-overflow: ellipsis }
"""


def page(printed: "Table[ModuleRow]") -> str:
    """Return the table of a count's modules as an element that needs no script."""
    rows = list(printed.rows)
    heads = ("module", "class", "output", "params", "MACs", "share")
    head = "".join(f'<span class="{"number" if place > 2 else ""}">{name}</span>' for place, name in enumerate(heads))
    below = "<br>".join(escape(escape_controls(line)) for line in printed.below)
    return (
        f'<div class="headcount"><style>{STYLE}</style><strong>{escape(printed.title)}</strong>'
        f'<div class="row head">{head}</div>{"".join(_modules(rows))}<p>{below}</p></div>'
    )


def _modules(rows: Sequence["ModuleRow"]) -> Iterator[str]:
    """Yield the rows; one with rows of a higher level after it folds them."""
    place = 0
    while place < len(rows):
        row, end = rows[place], place + 1
        while end < len(rows) and rows[end].level > row.level:
            end += 1
        if end == place + 1:
            yield f'<div class="row">{_cells(row)}</div>'
        else:
            is_open = " open" * (row.level < OPEN)
            inside = "".join(_modules(rows[place + 1 : end]))
            yield f"<details{is_open}><summary>{_cells(row)}</summary>{inside}</details>"
        place = end


def _cells(row: "ModuleRow") -> str:
    """Return the cells of a row; its share is a bar too."""
    texts = [escape(escape_controls(text)) for text in (row.module, row.type, row.output)]
    numbers = (DASH if number is None else f"{number:,}" for number in (row.params, row.macs))
    share = "" if row.share is None else f"{float(row.share):.2f} %"
    width = 0 if row.share is None else float(row.share)
    return (
        f'<span style="padding-left:{row.level}em">{texts[0]}</span>'
        + "".join(f"<span>{text}</span>" for text in texts[1:])
        + "".join(f'<span class="number">{number}</span>' for number in numbers)
        + f'<span class="bar" style="--share:{width:.2f}%">{share or DASH}</span>'
    )
