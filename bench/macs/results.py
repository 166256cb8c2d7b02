"""Format the last line of a command: its result in one sentence."""

from collections.abc import Sequence

from headcount.bench.result import as_table, format_macs
from headcount.bench.table import Row, Section, plural


def module_result(printed: Sequence[Section], in_flops: bool) -> str:
    """Return the result of a module: its count, and how many reported counts are explained."""
    count = printed[0].facts["count"]
    cells = _rows(printed, "module-counters")
    explained = sum(row.values["verdict"] not in ("failed", "unexplained") for row in cells)
    reported = f"; {explained} of {plural(len(cells), 'reported count')} explained by the trace" if cells else ""
    cost = f"{format_macs(count['macs'], in_flops)} ({count['headline']})"
    return f"{cost}, {count['params']:,} parameters{reported}."


def _rows(printed: Sequence[Section], name: str) -> Sequence[Row]:
    """Return the rows of the table ``name``."""
    return [row for section in printed if as_table(section).name == name for row in section.rows]
