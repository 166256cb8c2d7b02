"""Printed cells of a table by column."""

import re

from headcount.bench.column import DASH
from headcount.bench.render import realised

NUMBER = re.compile(r"[-+]?[\d,.]+( \[[\d,.-]+, [\d,.-]+\])?|<\S+|>\S+")


def columns(table):
    """Return the printed cells of each column by its head in one line; only numbers are aligned to the right."""
    table, found = realised(table), {}
    for column in table.columns:
        cells = [column.text(column.read(row)) for row in table.rows]
        head = " ".join(column.head_lines)
        known = [cell for cell in cells if cell != DASH]
        numbers = bool(known) and all(map(NUMBER.fullmatch, known))
        assert column.words or not known or numbers == (column.side == "right"), (head, cells)
        found[head] = cells
    return found
