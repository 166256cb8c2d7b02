"""What the MoH paper prints about cost, held against the ledger: its released code, its ideal, its position table."""

from fractions import Fraction
from typing import Any

from headcount.bench.table import Column
from headcount.formulas import conventions
from headcount.formulas.published.rounding import Printing
from headcount.reports import markdown
from headcount.reports.facts import Facts

PERCENT = {"unit": "%", "kind": "fixed", "digits": 2}


def released_against_ideal(facts: Facts) -> str:
    """Each printed MoH model beside its dense baseline: every head computed, and only those that a token uses."""
    rows = models(facts)
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
    return f"{about}\n\n{markdown.table(columns, rows)}"


def models(facts: Facts) -> list[dict[str, Any]]:
    """Each printed MoH model beside its dense baseline; ``whole`` and ``attention`` in percent of it."""
    return [_against_baseline(row, facts) for row in _rows(facts) if row["released_macs"]]


def _against_baseline(row: dict[str, Any], facts: Facts) -> dict[str, Any]:
    form = facts.ledger(row["preset"])
    dense, released, ideal = row["baseline_macs"], row["released_macs"], row["ideal_macs"]
    # all but attention is the same in the three
    rest = released - form.select(conventions.attention).macs
    return {
        "row": row["row"],
        "activated": row["activated"],
        "router_params": form.select(conventions.router).params,
        "baseline_macs": dense,
        "released_macs": released,
        "ideal_macs": ideal,
        "added": released - dense,
        "router_macs": form.select(conventions.router).macs,
        "saved": dense - ideal,
        "attention": Fraction(100 * (ideal - rest), dense - rest),
        "whole": Fraction(100 * ideal, dense),
    }


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
    return f"{about}\n\n{markdown.table(columns, rows)}"


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


def _rows(facts: Facts) -> list[dict[str, Any]]:
    """The values of every row, with its preset, of the tables that print activated heads; each model once."""
    found: dict[str, dict[str, Any]] = {}
    for name, table in facts.tables.items():
        if table.column("activated"):
            for made, row in zip(facts.closed(name)[0].rows, table.rows, strict=True):
                found.setdefault(row.name, {**made.values, "preset": row.preset})
    return list(found.values())
