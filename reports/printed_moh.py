"""What the MoH paper prints about cost, held against the ledger: its released code, its ideal, its position table."""

from fractions import Fraction
from typing import Any

from headcount.bench.table import Column
from headcount.formulas import conventions
from headcount.formulas.published import tables
from headcount.reports import markdown, results

PERCENT = {"unit": "%", "kind": "fixed", "digits": 2}


def released_against_ideal() -> str:
    """Each printed MoH model beside its dense baseline: every head computed, and only those that a token uses."""
    rows = [_against_baseline(record) for record in _records() if record["released_macs"]]
    columns = [
        Column("row", "model"),
        Column("activated", "heads used", **PERCENT),
        Column("router_params", "router parameters", kind="int"),
        Column("baseline_macs", "MACs, dense baseline", kind="int"),
        Column("added", "as released: added", kind="int"),
        Column("saved", "ideal: saved", kind="int"),
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
        "form that computes nothing of a head for a token that does not use it, but for its keys and values, does less "
        f"than the baseline in {cheaper}: {_percent(min(row['whole'] for row in rows))} to "
        f"{_percent(max(row['whole'] for row in rows))} of the whole model's MACs. In {short} its attention does a "
        "larger part of the dense attention's than the part of the heads that are used."
    )
    return f"{about}\n\n{markdown.table(columns, rows)}"


def _against_baseline(record: dict[str, Any]) -> dict[str, Any]:
    form = results.ledger_from(record["ledger"])
    dense, released, ideal = record["baseline_macs"], record["released_macs"], record["ideal_macs"]
    # all but attention is the same in the three
    rest = released - form.select(conventions.attention).macs
    return {
        "row": record["row"],
        "activated": Fraction(record["activated"]),
        "router_params": form.select(conventions.router).params,
        "baseline_macs": dense,
        "added": released - dense,
        "router_macs": form.select(conventions.router).macs,
        "saved": dense - ideal,
        "attention": Fraction(100 * (ideal - rest), dense - rest),
        "whole": Fraction(100 * ideal, dense),
    }


def _percent(value: Fraction) -> str:
    return f"{float(value):.1f} %"


def frozen_positions() -> str:
    """The frozen position table of the DiT models: which printed parameter figures hold it, and which do not."""
    table = tables.load("moh-dit")
    printing = table.column("params").printing
    printed = {row.name: row.cells["params"]["params"] for row in table.rows}
    rows = [_with_and_without(record, printed[record["row"]], printing) for record in _records("moh-dit")]
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
    return f"{about}\n\n{markdown.table(columns, rows)}"


HOLDS, LEAVES, EITHER, NEITHER = "holds it", "leaves it out", "says nothing", "neither"


def _with_and_without(record: dict[str, Any], printed: str, printing) -> dict[str, Any]:
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


def _records(*names: str) -> list[dict[str, Any]]:
    """The closed-form records of tables that print activated heads, all of them where none is named."""
    chosen = names or [name for name, table in tables.typed().items() if table.column("activated")]
    return [record for name in chosen for record in results.moh_published(name)["rows"]]
