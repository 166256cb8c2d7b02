"""The papers' tables as plain data: the parts that a table's rule may count, with their totals, and the rounding."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from headcount.bench.case import Case
from headcount.formulas import conventions
from headcount.formulas.ledger import Entry
from headcount.formulas.published.columns import Column, Row
from headcount.formulas.published.rounding import SHIFTS, UNITS
from headcount.formulas.published.tables import PublishedTable
from headcount.formulas.published.verdicts import Verdict
from headcount.reports.facts import Facts

_LINEAR = {
    conventions.router: "routers",
    conventions.vocabulary_projection: "vocabulary projection",
    conventions.attention: "attention projections",
    conventions.feed_forward: "feed-forward layers",
}
_LABELS = {"scores": "first T S product (scores)", "values": "second T S product (values)", "bias": "other biases"}
"""Labels of kinds that are not the kind itself."""
_PROPERTIES = {"macs": "size", "params": "params"}
"""The property of an entry that a column sums, by the column's quantity."""


def part(entry: Entry) -> str:
    """Return the label of an entry's part."""
    if conventions.projections(entry):
        return next((label for is_part, label in _LINEAR.items() if is_part(entry)), "other linear layers")
    if conventions.ffn_biases(entry):
        return "feed-forward biases"
    return _LABELS.get(entry.kind, entry.kind.replace("_", " "))


def tables(facts: Facts) -> dict[str, Any]:
    """Return the tables that print MACs or parameters.

    ``parts``: by label, whether the part is a contraction; ``models``: by preset and quantity, the total of each
    part; ``tables``: each with its columns, see :func:`_columns`.
    """
    models: dict[str, dict[str, dict[str, int]]] = {}
    parts: dict[str, bool] = {}
    found = []
    for table in facts.tables.values():
        columns = [one for column in table.columns for one in _columns(facts, table, column)]
        if not columns:
            continue
        found.append({"name": table.name, "title": table.title, "columns": columns})
        for row in table.rows:
            ledger = facts.ledger(row.preset)
            for quantity in (column["quantity"] for column in columns):
                totals = ledger.group(part, _PROPERTIES[quantity])
                models.setdefault(row.preset, {})[quantity] = {label: size for label, size in totals.items() if size}
            for entry in ledger:
                parts[part(entry)] = parts.get(part(entry), False) or conventions.exact(entry)
    return {"parts": parts, "models": models, "tables": found}


def _columns(facts: Facts, table: PublishedTable, column: Column) -> Iterator[dict[str, Any]]:
    """Return a column for each of its printed names, and none for a quantity that is no sum over entries.

    ``multiplicity``: how many times the rule counts each part.
    """
    if column.quantity not in _PROPERTIES:
        return
    multiplicity = getattr(column, "multiplicity", lambda entry: 1)
    counted = {part(entry): multiplicity(entry)
               for row in table.rows for entry in facts.ledger(row.preset)
               if getattr(entry, _PROPERTIES[column.quantity])}  # fmt: skip
    printing, shift = column.printing, SHIFTS[column.printing.rounding]
    for name in getattr(column, "names", ("",)):
        cells = [
            (row, row.cells.get(column.quantity, {}).get(name) if name else column.printed(row)) for row in table.rows
        ]
        yield {
            "quantity": column.quantity,
            "suffix": name.removeprefix(column.quantity),
            "rule": column.statement,
            "multiplicity": counted,
            "print": {**asdict(printing), "scale": UNITS[printing.unit], "shift": shift.as_integer_ratio()},
            "rows": [_row(row, cell, column, facts.verdicts(table.name)[row.name]) for row, cell in cells if cell],
        }


def _row(row: Row, cell: str, column: Column, verdict: Verdict) -> list[Any]:
    """Return name, preset, printed cell, verdict and reason where the column is judged, and what closes its gap."""
    adjust = [[str(term), column.adjusted(term, Case.of(row.preset))]
              for term in row.adjust if term.of == column.quantity]  # fmt: skip
    judged = [verdict.status, verdict.because or ""] if column.judged else ["", ""]
    return [row.name, row.preset, cell, *judged, *([adjust] if adjust else [])]
