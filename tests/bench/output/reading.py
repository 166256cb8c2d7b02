"""A table as its reader has it: the cells below each head, and which heads a line of some width has."""

import io
import re

from headcount.bench.output.base import Style
from headcount.bench.output.layout import GAP
from headcount.bench.output.text import Text
from headcount.bench.render import realised
from headcount.bench.table import DASH

NUMBER = re.compile(r"[-+]?[\d,.]+( \[[\d,.-]+, [\d,.-]+\])?|<\S+|>\S+")


def columns(section):
    """The printed cells of each column, by its head in one line. Numbers alone stand on the right."""
    section, found = realised(section), {}
    for column in section.table.columns:
        cells = [column.text(row.values[column.key]) for row in section.rows]
        head = " ".join(column.head_lines)
        known = [cell for cell in cells if cell != DASH]
        numbers = bool(known) and all(map(NUMBER.fullmatch, known))
        assert column.words or not known or numbers == (column.side == "right"), (head, cells)
        found[head] = cells
    return found


def kept(section, width):
    """The heads, each in one line, of what is not left out of a terminal of ``width`` columns."""
    return _heads(_laid(realised(section), width).columns)


def left_out(section):
    """The heads, in the order in which a terminal that narrows leaves them out."""
    section, width, found = realised(section), 10**6, []
    while True:
        layout = _laid(section, width)
        found += [head for head in _heads(layout.left_out) if head not in found]
        taken = sum(layout.widths) + len(GAP) * (len(layout.widths) - 1)
        if taken > width:
            return found
        width = taken - 1


def _laid(section, width):
    out = Text(io.StringIO(), Style(width=width, unit="raw"))
    out.print(section, section.rows)
    return out.layout


def _heads(columns):
    return [" ".join(column.head_lines) for column in columns]
