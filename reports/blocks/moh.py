"""Blocks of the MoH paper: its released code against the ideal form, and its frozen position table."""

from typing import Any

from headcount.reports import document, papers
from headcount.reports.document import File
from headcount.reports.facts import Facts
from headcount.reports.plots import share

share_plot = share.PLOT
models_csv = File("moh_models.csv", lambda facts: document.table_as_csv(papers.models(facts)))

PERCENT = {"unit": "%", "kind": "fixed", "digits": 2}
HEADS = {
    "row": "model",
    "router_params": "router parameters",
    "baseline_macs": "MACs, dense baseline",
    "released_macs": "MACs, as released",
    "ideal_macs": "MACs, ideal",
    "attention": "ideal attention / dense",
    "whole": "ideal model / dense",
}


def released(facts: Facts) -> dict[str, Any]:
    """Return a table of each printed MoH model with its dense baseline, as released and ideal, and its summary."""
    rows = papers.models(facts)
    added = [row["added"] for row in rows]
    parts = [float(row["whole"]) for row in rows]
    shown = [{head: row[key] for key, head in HEADS.items()} for row in rows]
    formats = dict.fromkeys(("ideal attention / dense", "ideal model / dense"), PERCENT)
    return {
        "dearer": sum(macs > 0 for macs in added),
        "count": len(rows),
        "less": sum(macs < 0 for macs in added),
        "by_routers": sum(row["added"] == row["router_macs"] for row in rows),
        "free": ", ".join(row["row"] for row in rows if not row["router_params"]) or "none",
        "cheaper": sum(row["saved"] > 0 for row in rows),
        "least": min(parts),
        "most": max(parts),
        "short": sum(row["attention"] > row["activated"] for row in rows),
        "table": document.records(shown, formats),
    }


def positions(facts: Facts) -> dict[str, Any]:
    """Return which printed parameter figures of the DiT models include the frozen position table."""
    table, rows = facts.tables["moh-dit"], []
    column = table.column("params")
    for row, closed in zip(table.rows, facts.closed("moh-dit").rows, strict=True):
        params, trainable = closed.params, closed.trainable_params
        printed = row.printed["params"]
        texts = [column.text(size, printed) for size in (params, trainable)]
        rows.append(
            {
                "model": row.name,
                "position table, parameters": params - trainable,
                "printed": printed,
                "prints with the table": texts[0],
                "prints without": texts[1],
                FIGURE: VERDICTS[texts[0] == printed, texts[1] == printed],
            }
        )
    names = {verdict: [row["model"] for row in rows if row[FIGURE] == verdict] for verdict in VERDICTS.values()}
    needs, leaves, either, neither = names.values()
    right = dict.fromkeys(("printed", "prints with the table", "prints without"), {"align": "right"})
    return {
        "needs": ", ".join(needs) or "no rows",
        "leaves": ", ".join(leaves) or "no rows",
        "both": len(either),
        "count": len(rows),
        "one": "no single rule prints all rows" if (needs and leaves) or neither else "one rule prints all rows",
        "table": document.records(rows, right),
    }


FIGURE = "the printed figure"
VERDICTS = {
    (True, False): "holds it",
    (False, True): "leaves it out",
    (True, True): "says nothing",
    (False, False): "neither",
}
"""Text on the position table, by whether the printed figure fits with it and without it."""
