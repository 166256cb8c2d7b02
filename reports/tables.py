"""The published tables in documents: printed, under the rule, exact, counted, with verdicts."""

from headcount.bench.table import Column
from headcount.formulas.published.tables import VERDICTS
from headcount.reports import markdown
from headcount.reports.facts import COUNTED, Facts


def verdicts(facts: Facts) -> str:
    """How many rows of each counted table come out, and how."""
    rows = []
    for name in facts.of_paper(COUNTED):
        found = [row.values["verdict"] for row in facts.counted(name).rows]
        rows.append({"table": name, "rows": len(found), **{verdict: found.count(verdict) for verdict in VERDICTS}})
    columns = [Column("table", "table"), Column("rows", "rows", kind="int")]
    return markdown.table([*columns, *(Column(verdict, verdict, kind="int") for verdict in VERDICTS)], rows)


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
