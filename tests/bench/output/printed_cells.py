"""Printed cells of a table by column."""

import re

from headcount.bench.render import realised
from headcount.bench.table import DASH

NUMBER = re.compile(r"[-+]?[\d,.]+( \[[\d,.-]+, [\d,.-]+\])?|<\S+|>\S+")


def columns(section):
    """Return the printed cells of each column by its head in one line; only numbers are aligned to the right."""
    section, found = realised(section), {}
    for column in section.table.columns:
        cells = [column.text(row.values[column.key]) for row in section.rows]
        head = " ".join(column.head_lines)
        known = [cell for cell in cells if cell != DASH]
        numbers = bool(known) and all(map(NUMBER.fullmatch, known))
        assert column.words or not known or numbers == (column.side == "right"), (head, cells)
        found[head] = cells
    return found
