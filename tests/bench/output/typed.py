"""Tables as a reader meets them, typed: the title, and a line for each column."""

import io
import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from headcount.bench.output.base import Style
from headcount.bench.output.text import Text
from headcount.bench.table import INTERVAL

NARROWEST, TERMINAL = 1, 80


def typed(text):
    """A typed table: its title, then of each column the heading, what it holds, and ``always``, ``80`` or ``wide``: at
    least two blanks apart."""
    return [tuple(re.split(r" {2,}", line.strip())) for line in text.strip().splitlines()]


def described(section):
    """The same of a table that is printed: its columns are in any terminal, in one of 80, or where all have room."""
    always, at_80 = (_kept(section, width) for width in (NARROWEST, TERMINAL))
    columns = [
        (
            " ".join(" ".join(column.head_lines).split()),
            holds(column),
            "always" if column.key in always else "80" if column.key in at_80 else "wide",
        )
        for column in section.table.columns
    ]
    return [(section.table.title,), *columns]


def holds(column):
    """Of numbers what they count, ± where a plus is printed too, or how a third is printed; of texts which kind."""
    if column.kind == "int":
        return "±" * column.sign + (column.of or "integer") + " or text" * column.words
    if column.kind != "text":
        third = Fraction(1, 3)
        return column.text(dict.fromkeys(INTERVAL, third) if column.kind == "interval" else third)
    kind = "verdict" if column.tones else "code" if column.code else "formula" if column.formula else "text"
    return kind + ", broken" * bool(column.wraps) + ", right" * (column.side == "right")


def _kept(section, width):
    """The keys of the columns that a terminal so wide has. Where rows come one by one none is needed to know them."""
    rows = section.rows if isinstance(section.rows, Sequence) else iter(())
    text = Text(io.StringIO(), Style(width=width))
    text.print(replace(section, rows=rows), rows)
    return {column.key for column in text.layout.columns}
