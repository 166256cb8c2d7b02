"""The published tables in documents: printed, under the rule, exact, counted, with verdicts."""

from headcount.bench.table import Column
from headcount.formulas.published import tables
from headcount.reports import markdown, results


def verdicts() -> str:
    """How many rows of each table come out, and how."""
    rows = []
    for name in tables.names("moa"):
        found = [r["verdict"] for r in results.published(name)["rows"] if r["counter"] == "closed-form"]
        rows.append({"table": name, "rows": len(found), **{v: found.count(v) for v in tables.VERDICTS}})
    columns = [Column("table", "table"), Column("rows", "rows", kind="int")]
    return markdown.table([*columns, *(Column(verdict, verdict, kind="int") for verdict in tables.VERDICTS)], rows)


def counted(name: str) -> str:
    """One table's MAC columns, its rule above them and the arithmetic of its verdicts below."""
    table = results.published(name)
    counters = list(dict.fromkeys(r["counter"] for r in table["rows"] if r["counter"] != "closed-form"))
    columns = [
        Column("row", "row"),
        Column("macs_printed", "MACs printed", align="right"),
        Column("macs_under_rule", "under the rule", kind="int"),
        Column("macs", "exact", kind="int"),
        *(Column(counter, counter, kind="int") for counter in counters),
        Column("verdict", "verdict"),
    ]
    rows, notes = [], []
    for record in (r for r in table["rows"] if r["counter"] == "closed-form"):
        readings = {r["counter"]: r["macs"] for r in table["rows"] if r["row"] == record["row"]}
        rows.append({**record, **{counter: readings[counter] for counter in counters}})
        notes.append([record["because"]] if record["because"] else [])
    return f"Rule: {table['rule']}\n\n" + markdown.table(columns, rows, notes)


def parameters(name: str) -> str:
    """One table's parameter columns: printed, counted, active, and the vocabularies that the printed ones imply."""
    table, implied = results.published(name), results.published(f"{name}-vocabulary")
    by_row = {row["row"]: row for row in implied["rows"]}
    printed = list(tables.load(name).column("params").names)
    columns = [Column("row", "row")]
    columns += [Column("params", "counted", kind="int"), Column("active_params", "active", kind="int")]
    for key in printed:
        columns += [
            Column(f"printed_{key}", f"printed {key if key != 'params' else ''}".strip(), align="right"),
            Column(f"low_{key}", "vocabulary from", kind="int"),
            Column(f"high_{key}", "to", kind="int"),
        ]
    rows = [{**r, **by_row[r["row"]]} for r in table["rows"] if r["counter"] == "closed-form"]
    return markdown.table(columns, rows) + "\n\n" + "\n".join(f"- {line}" for line in implied["below"])


def moh() -> str:
    """Every table of the MoH paper: printed parameters and activated heads, MACs as released and as they could be."""
    return results.moh_tables().strip().replace("## ", "### ")
