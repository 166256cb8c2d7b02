"""Format the last line of a command: its result in one sentence."""

from collections.abc import Sequence

from headcount.bench.result import as_table
from headcount.bench.table import Row, Section


def _rows(printed: Sequence[Section], name: str) -> Sequence[Row]:
    """Return the rows of the table ``name``."""
    return [row for section in printed if as_table(section).name == name for row in section.rows]
