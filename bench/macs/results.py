"""Format the last line of a command: its result in one sentence."""

from collections.abc import Sequence

from headcount.bench.result import as_table, format_macs
from headcount.bench.table import Row, Section, plural


def comparison_result(printed: Sequence[Section], in_flops: bool) -> str:
    """Return the result of a comparison: the difference of A and B, and their crossovers."""
    totals = [one.rows[-1].values for one in printed if one.rows and one.rows[-1].total]
    differences = [total[key] for total in totals for key in ("difference", "difference_exact") if key in total]
    if not differences:
        return ""
    difference = differences[0]
    if difference:
        out = f"A: {format_macs(abs(difference), in_flops)} {'more' if difference > 0 else 'less'} than B"
    else:
        out = f"A: as many {'FLOPs' if in_flops else 'MACs'} as B"
    if crossovers := _rows(printed, "compare-crossovers"):
        found = [row.values["letter"] for row in crossovers if row.values["counted"] != "no crossover"]
        letters = ", ".join(dict.fromkeys(found))
        out += f"; {plural(len(found), 'crossover')} ({letters})" if found else "; no crossover"
    return f"{out}."


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
