"""The MoH paper: its tables, its released code against the ideal form, and its frozen position table."""

from fractions import Fraction
from functools import partial
from typing import Any

from headcount.bench.table import Column
from headcount.formulas.published.rounding import Printing
from headcount.reports import document, papers, tables
from headcount.reports.document import Page, Section
from headcount.reports.facts import Facts
from headcount.reports.plots import share
from headcount.reports.plots.plot import files

ORDER = 30


def page(facts: Facts) -> Page:
    """The page."""
    every = [f"python -m bench.macs --counter closed-form --table {' '.join(facts.of_paper('moh'))}"]
    return Page(
        "moh",
        "Mixture-of-head attention",
        lambda facts: facts.claims.papers["moh"].source + ".",
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


def released_against_ideal(facts: Facts) -> str:
    """Each printed MoH model beside its dense baseline: every head computed, and only those that a token uses."""
    rows = papers.models(facts)
    columns = [
        Column("row", "model"),
        Column("router_params", "router parameters", kind="int"),
        Column("baseline_macs", "MACs, dense baseline", kind="int"),
        Column("released_macs", "MACs, as released", kind="int"),
        Column("ideal_macs", "MACs, ideal", kind="int"),
        Column("attention", "ideal attention / dense", **PERCENT),
        Column("whole", "ideal model / dense", **PERCENT),
    ]
    dearer, less, by_routers = (
        sum(test(row) for row in rows)
        for test in (lambda r: r["added"] > 0, lambda r: r["added"] < 0, lambda r: r["added"] == r["router_macs"])
    )
    cheaper = sum(row["saved"] > 0 for row in rows)
    short = sum(row["attention"] > row["activated"] for row in rows)
    free = [row["row"] for row in rows if not row["router_params"]]
    about = (
        f"As released, {dearer} of the {len(rows)} models do more than their dense baselines and {less} do less; in "
        f"{by_routers} the difference is what the routers do (routers without weights: {', '.join(free) or 'none'}). A "
        "form that computes nothing of a head for a token that does not use it, but for its keys and values, and for "
        f"its queries where their norms route, does less than the baseline in {cheaper}: "
        f"{_percent(min(row['whole'] for row in rows))} to "
        f"{_percent(max(row['whole'] for row in rows))} of the whole model's MACs. In {short} its attention does a "
        "larger part of the dense attention's than the part of the heads that are used."
    )
    return f"{about}\n\n{document.table(columns, rows)}"


def _percent(value: Fraction) -> str:
    return f"{float(value):.1f} %"


def frozen_positions(facts: Facts) -> str:
    """The frozen position table of the DiT models: which printed parameter figures hold it, and which do not."""
    column = facts.tables["moh-dit"].column("params")
    printed = {row.name: column.printed(row) for row in facts.tables["moh-dit"].rows}
    (table,) = facts.closed("moh-dit")
    rows = [_with_and_without(row.values, printed[row.values["row"]], column.printing) for row in table.rows]
    columns = [
        Column("row", "model"),
        Column("table", "position table, parameters", kind="int"),
        Column("printed", "printed", align="right"),
        Column("with", "prints with the table", align="right"),
        Column("without", "prints without", align="right"),
        Column("holds", "the printed figure"),
    ]
    needs, leaves, neither = (
        [row["row"] for row in rows if row["holds"] == verdict] for verdict in (HOLDS, LEAVES, NEITHER)
    )
    one = "no single rule prints all rows" if (needs and leaves) or neither else "one rule prints all rows"
    both = len(rows) - len(needs) - len(leaves) - len(neither)
    about = (
        "The sines and cosines of the positions are stored as a parameter that training leaves alone. "
        f"{_listed(needs)} print only with it, {_listed(leaves)} only without; {both} of {len(rows)} rows print either "
        f"way: {one}. A counter of trainable parameters, as ptflops is, gives the figure without."
    )
    return f"{about}\n\n{document.table(columns, rows)}"


HOLDS, LEAVES, EITHER, NEITHER = "holds it", "leaves it out", "says nothing", "neither"


def _with_and_without(record: dict[str, Any], printed: str, printing: Printing) -> dict[str, Any]:
    rule = printing.like(printed)
    whole, trainable = (rule.text(record[key]) for key in ("params", "trainable_params"))
    verdicts = {(True, False): HOLDS, (False, True): LEAVES, (True, True): EITHER, (False, False): NEITHER}
    return {
        "row": record["row"],
        "table": record["params"] - record["trainable_params"],
        "printed": printed,
        "with": whole,
        "without": trainable,
        "holds": verdicts[whole == printed, trainable == printed],
    }


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "no rows"
