"""The published tables in documents: printed, under the rule, exact, counted, with verdicts."""

from collections.abc import Sequence
from typing import Any

from headcount.bench.table import Column
from headcount.formulas.published.tables import VERDICTS
from headcount.reports import markdown
from headcount.reports.facts import COUNTED, Facts


def verdicts(facts: Facts) -> str:
    """How many rows of each table come out, and how, with the totals; those that are unexplained by name."""
    rows, unexplained = [], []
    for name in facts.tables:
        counts = facts.counted(name) if name in facts.of_paper(COUNTED) else None
        found = facts.verdicts(name)
        # a table that is counted fails where a count is not as it must be
        statuses = [row.values["verdict"] for row in counts.rows] if counts else [v.status for v in found.values()]
        rows.append(_counts(name, statuses))
        unexplained += [f"{name}, {row}: {v.because}." for row, v in found.items() if v.status == "unexplained"]
    rows.append({key: "all" if key == "table" else sum(row[key] for row in rows) for key in rows[0]})
    columns = [Column("table", "table"), Column("rows", "rows", kind="int")]
    made = markdown.table([*columns, *(Column(verdict, verdict, kind="int") for verdict in VERDICTS)], rows)
    return "\n\n".join([made, *(f"- {line}" for line in unexplained)])


def _counts(name: str, found: Sequence[str]) -> dict[str, Any]:
    return {"table": name, "rows": len(found), **{verdict: found.count(verdict) for verdict in VERDICTS}}


def counted(facts: Facts, name: str) -> str:
    """One table's MAC columns, its rule above them and the arithmetic of its verdicts below."""
    section = facts.counted(name)
    keys = [column.key for column in section.table.columns]
    return f"Rule: {facts.tables[name].rule}\n\n" + markdown.rows_of(
        section.only("row", *keys[keys.index("macs_printed") :])
    )


def parameters(facts: Facts, name: str) -> str:
    """One table's parameter columns: counted, active, printed, and the vocabularies that the printed ones imply."""
    sizes, implied = facts.counted(name).only("row", "params", "active_params"), facts.vocabularies(name)
    rows = [{**a.values, **b.values} for a, b in zip(sizes.rows, implied.rows, strict=True)]
    columns = [*sizes.table.columns, *implied.table.columns[1:]]
    return markdown.table(columns, rows) + "\n\n" + "\n".join(f"- {line}" for line in implied.below)


def closed(facts: Facts, paper: str) -> str:
    """Every table of a paper in closed form."""
    return markdown.whole([section for name in facts.of_paper(paper) for section in facts.closed(name)])
