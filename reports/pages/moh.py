"""The MoH paper: its tables, its released code against the ideal form, and its frozen position table."""

from functools import partial
from typing import Any

from headcount.formulas.published.rounding import Printing
from headcount.reports import document, papers, tables
from headcount.reports.document import Page, Section, text
from headcount.reports.facts import Facts
from headcount.reports.plots import share
from headcount.reports.plots.plot import files


def page(facts: Facts) -> Page:
    """Return the page."""
    every = [f"python -m bench.macs --counter closed-form --table {' '.join(facts.of_paper('moh'))}"]
    return Page(
        "moh",
        "Mixture-of-head attention",
        facts.claims.papers["moh"].source + ".",
        [
            Section("The published tables", [partial(tables.of_paper, paper="moh")], every),
            Section("Released code against ideal", [share.PLOT.shown, released_against_ideal], every),
            Section(
                "The frozen position table",
                [frozen_positions],
                ["python -m bench.macs --counter closed-form --table moh-dit"],
            ),
            Section("Departures from the authors' code", [partial(papers.departures, paper="moh")]),
        ],
        files(share.PLOT),
    )


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


def released_against_ideal(facts: Facts) -> str:
    """Return each printed MoH model with its dense baseline: every head computed, and only those that a token uses."""
    rows = papers.models(facts)
    added = [row["added"] for row in rows]
    parts = [float(row["whole"]) for row in rows]
    about = text(
        "moh.released",
        dearer=sum(macs > 0 for macs in added),
        count=len(rows),
        less=sum(macs < 0 for macs in added),
        by_routers=sum(row["added"] == row["router_macs"] for row in rows),
        free=", ".join(row["row"] for row in rows if not row["router_params"]) or "none",
        cheaper=sum(row["saved"] > 0 for row in rows),
        least=min(parts),
        most=max(parts),
        short=sum(row["attention"] > row["activated"] for row in rows),
    )
    shown = [{head: row[key] for key, head in HEADS.items()} for row in rows]
    formats = dict.fromkeys(("ideal attention / dense", "ideal model / dense"), PERCENT)
    return f"{about}\n\n{document.records(shown, formats)}"


def frozen_positions(facts: Facts) -> str:
    """Return which printed parameter figures of the DiT models hold the frozen position table, and which do not."""
    column = facts.tables["moh-dit"].column("params")
    printed = {row.name: column.printed(row) for row in facts.tables["moh-dit"].rows}
    (table,) = facts.closed("moh-dit")
    rows = [_with_and_without(row.values, printed[row.values["row"]], column.printing) for row in table.rows]
    names = {verdict: [row["model"] for row in rows if row[FIGURE] == verdict] for verdict in VERDICTS.values()}
    needs, leaves, either, neither = names.values()
    about = text(
        "moh.positions",
        needs=", ".join(needs) or "no rows",
        leaves=", ".join(leaves) or "no rows",
        both=len(either),
        count=len(rows),
        one="no single rule prints all rows" if (needs and leaves) or neither else "one rule prints all rows",
    )
    right = dict.fromkeys(("printed", "prints with the table", "prints without"), {"align": "right"})
    return f"{about}\n\n{document.records(rows, right)}"


FIGURE = "the printed figure"
VERDICTS = {
    (True, False): "holds it",
    (False, True): "leaves it out",
    (True, True): "says nothing",
    (False, False): "neither",
}
"""What a printed figure says of the position table, by whether it fits with it and without it."""


def _with_and_without(record: dict[str, Any], printed: str, printing: Printing) -> dict[str, Any]:
    rule = printing.like(printed)
    whole, trainable = (rule.text(record[key]) for key in ("params", "trainable_params"))
    return {
        "model": record["row"],
        "position table, parameters": record["params"] - record["trainable_params"],
        "printed": printed,
        "prints with the table": whole,
        "prints without": trainable,
        FIGURE: VERDICTS[whole == printed, trainable == printed],
    }
