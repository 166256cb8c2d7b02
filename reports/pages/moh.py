"""The MoH paper: its tables, its released code against the ideal form, and its frozen position table."""

from functools import partial

from headcount.reports import document, papers, tables
from headcount.reports.document import Page, Section, text
from headcount.reports.facts import Facts
from headcount.reports.plots import share

DATA, MODELS = "moh.csv", "moh_models.csv"


def page(facts: Facts) -> Page:
    """Return the page."""
    every = [f"python -m bench.macs --counter closed-form --table {' '.join(facts.of_paper('moh'))}"]
    return Page(
        "moh",
        "Mixture-of-head attention",
        facts.claims.papers["moh"].source + ".",
        [
            Section(
                "The published tables",
                [partial(tables.summary, paper="moh", name=DATA), partial(tables.closed_form_tables, paper="moh")],
                every,
            ),
            Section("Released code against ideal", [share.PLOT, released_against_ideal], every),
            Section(
                "The frozen position table",
                [frozen_positions],
                ["python -m bench.macs --counter closed-form --table moh-dit"],
            ),
            Section("Departures from the authors' code", [partial(papers.departures, paper="moh")]),
        ],
        {
            DATA: partial(tables.data, paper="moh"),
            MODELS: lambda facts: document.table_as_csv(papers.models(facts)),
        },
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
    """Return each printed MoH model with its dense baseline, as released and ideal."""
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
    return f"{about} {document.link_csv(MODELS)}\n\n{document.records(shown, formats)}"


def frozen_positions(facts: Facts) -> str:
    """Return which printed parameter figures of the DiT models include the frozen position table."""
    table, (section,), rows = facts.tables["moh-dit"], facts.closed("moh-dit"), []
    column = table.column("params")
    for row, closed in zip(table.rows, section.rows, strict=True):
        params, trainable = closed.values["params"], closed.values["trainable_params"]
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
    about = text(
        "moh.positions",
        needs=", ".join(needs) or "no rows",
        leaves=", ".join(leaves) or "no rows",
        both=len(either),
        count=len(rows),
        one="no single rule prints all rows" if (needs and leaves) or neither else "one rule prints all rows",
    )
    right = dict.fromkeys(("printed", "prints with the table", "prints without"), {"align": "right"})
    return f"{about} {document.link_csv(DATA)}\n\n{document.records(rows, right)}"


FIGURE = "the printed figure"
VERDICTS = {
    (True, False): "holds it",
    (False, True): "leaves it out",
    (True, True): "says nothing",
    (False, False): "neither",
}
"""Text on the position table, by whether the printed figure fits with it and without it."""
