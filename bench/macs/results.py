"""Format the last line of a command: its result in one sentence."""

from collections import Counter
from collections.abc import Iterable, Sequence

from headcount.bench.counting.choices import CLOSED_FORM
from headcount.bench.result import as_table, format_macs
from headcount.bench.table import Row, Section, plural
from headcount.formulas.published import tables
from headcount.formulas.published.verdicts import VERDICTS

NOTHING, NOT_COUNTED = "no printed value", "not counted"
"""Words in place of a verdict: of an empty cell, and of a model that could not be counted."""


def tables_result(printed: Sequence[Section], in_flops: bool) -> str:
    """Return the result of tables: the number of rows by verdict, and of wrong counts."""
    names = {"printed row": tables.names(), "printed figure": tables.figure_names()}
    parts = []
    for what, known in names.items():
        rows = [row for section in printed if section.table.name in known for row in section.rows]
        parts += [verdicts((row for row in rows if row.values["verdict"] != NOTHING), what)] if rows else []
    return _sentence([*parts, *_counts(printed)])


def _sentence(parts: Iterable[str]) -> str:
    return "; ".join(parts) + "."


def verdicts(rows: Iterable[Row], what: str) -> str:
    """Return how many rows have each verdict; ``what`` is the name of one of them."""
    found = Counter(row.values["verdict"] for row in rows)
    each = ", ".join(f"{found[verdict]} {verdict}" for verdict in (*VERDICTS, NOT_COUNTED) if verdict in found)
    return f"{plural(found.total(), what)}: {each}"


def _counts(printed: Sequence[Section]) -> list[str]:
    records = (record for section in printed for row in section.rows for record in row.records)
    counts = [r for r in records if r.get("counter") not in (None, CLOSED_FORM) and r.get("macs") is not None]
    wrong = sum(record["macs"] != record["predicted_macs"] for record in counts)
    return [f"counts that differ from their counter's rules: {wrong} of {len(counts)}"] if counts else []


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
