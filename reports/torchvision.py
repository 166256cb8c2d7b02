"""torchvision's own operation counts beside ours, from a stored run: totals, and how rows with boxes come about."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from headcount.bench.table import Column
from headcount.reports import markdown
from headcount.reports.facts import Facts

RECORD = "torchvision.json"
COMMAND = f"python -m bench.macs --published torchvision --format json --out reports/records/{RECORD}"
NOT_RUN = f"Not stored: `{COMMAND}` makes a record where torchvision is installed."


def page(facts: Facts) -> str:
    """Verdicts by kind of model, and how rows with boxes are made up; or how to make the record."""
    found = facts.stored_json(RECORD)
    if found is None:
        return NOT_RUN
    (table,) = found["tables"]
    rows = [row for row in table["rows"] if "tally" not in row]
    about = (
        f"{table['source']}, counted again on meta by torchvision {table['torchvision']} and torch {table['torch']}: "
        f"`{COMMAND}`. The printed number is rounded to three digits of G; the right count is of dispatched products. "
        "A two-stage detector looks again at boxes whose number is data: everything else is counted, and the number of "
        "boxes solved for."
    )
    solved = [row for row in rows if row["because"]]
    return "\n\n".join([about, _totals(rows), _made_up(solved)] if solved else [about, _totals(rows)])


def _totals(rows: Sequence[Mapping[str, Any]]) -> str:
    verdicts = list(dict.fromkeys(row["verdict"] for row in rows))
    counts = Counter((row["kind"], row["verdict"]) for row in rows)
    columns = [Column("kind", "kind of model"), *(Column(verdict, verdict, kind="int") for verdict in verdicts)]
    kinds = [*dict.fromkeys(row["kind"] for row in rows)]
    lines = [{"kind": kind, **{verdict: counts[kind, verdict] for verdict in verdicts}} for kind in kinds]
    lines.append({"kind": "all", **{verdict: sum(line[verdict] for line in lines) for verdict in verdicts}})
    return markdown.table(columns, lines)


def _made_up(rows: Sequence[Mapping[str, Any]]) -> str:
    columns = [
        Column("weights", "weights"),
        Column("ops_printed", "printed, G", align="right"),
        Column("because", "counted"),
    ]
    return markdown.table(columns, [dict(row) for row in rows])
